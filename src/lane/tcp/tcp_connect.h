/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_TCP_TCP_CONNECT_H
#define LANE_TCP_TCP_CONNECT_H

/* Wires over TCP; the rules of connect.h apply. */

#include "lane/connect.h"
#include "lane/hello.h"

/* Tries all n addresses at once; the first that authenticates wins. */
int tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key, const union address *to,
	     unsigned n, uint64_t deadline_ms, struct wire **out);

/* Takes a connected socket whose LANE_HELLO has been read and verified, and states these
 * terms: answers it and makes the wire. Owns fd from here on. */
int tcp_take(struct lane *l, uint32_t epoch, const struct lane_key *key, int fd,
	     const struct hello_terms *terms, struct wire **out);

/* Binds to addr and listens. port 0 in addr: the first free port of lo..hi, or any port if lo is 0.
 * tos: see base/tos.h; callers inherit it. Returns the descriptor, non-blocking, and the port in
 * *port; or -1. */
int tcp_listen(const union address *addr, unsigned lo, unsigned hi, unsigned tos, unsigned *port);

/* Sets the options that a lane's socket has: a peer whose host is gone is noticed, and small
 * messages are sent at once. Sockets that are not TCP reject some; that is no failure. */
void tcp_set_options(int fd, int timeout_ms);

#endif
