/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_TCP_TCP_CONNECT_H
#define LANE_TCP_TCP_CONNECT_H

/* Wires over TCP; connect.h has the rules. */

#include "lane/connect.h"

/* Try all n addresses at once, the first that proves itself wins. */
int tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key, const union address *to,
	     unsigned n, uint64_t deadline_ms, struct wire **out);

/* A connected socket whose LANE_HELLO has been read and verified: answer and make the wire.
 * Owns fd from here on. */
int tcp_take(struct lane *l, uint32_t epoch, const struct lane_key *key, int fd, struct wire **out);

/* Bind and listen on addr (port 0: the first of lo..hi that works, any when lo is 0);
 * returns the descriptor, non-blocking, and the port in *port, or -1. */
int tcp_listen(const union address *addr, unsigned lo, unsigned hi, unsigned *port);

#endif
