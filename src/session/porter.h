/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_PORTER_H
#define SESSION_PORTER_H

/*
 * The porter stands at this end's listeners and sorts out who comes.
 *
 * First (rdrecv): porter_admit() waits for a peer that finishes a TLS handshake with the key;
 * several may be in the middle of it, each with a deadline of HANDSHAKE_MS, so that a silent
 * or wrong one holds up nobody.  Nothing but a socket is kept for a stranger who has said
 * nothing; at most STRANGERS_MAX are kept, the oldest silent one goes.
 *
 * Then, as a thread: callers for lanes, on TCP (LANE_HELLO in the first bytes) and RDMA
 * (private data), are verified and left for the lane's thread in lane_caller(); each token
 * is good once.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/connect.h"
#include "session/channel.h"
#include "session/message.h"

enum { HANDSHAKE_MS = 10000, STRANGERS_MAX = 256 };

struct porter;

int porter_new(struct porter **out);
/* Stops the thread, closes listeners and callers that nobody took. NULL is fine. */
void porter_free(struct porter *p);

/* Listen for TCP at addr (NULL: everywhere, IPv4 and IPv6) and one port out of lo..hi
 * (0: any); the same port for all TCP listeners of a porter. */
int porter_listen_tcp(struct porter *p, const union address *addr, unsigned lo, unsigned hi);
/* Listen for RDMA callers at addr; its port in *port. */
int porter_listen_rdma(struct porter *p, const union address *addr, unsigned lo, unsigned hi,
		       unsigned *port);
unsigned porter_tcp_port(const struct porter *p);

/* Wait for an authenticated peer, until deadline_ms (0: for ever) or cancelled().  -1 with
 * OUT_CONNECT when the time is over. */
int porter_admit(struct porter *p, const struct psk *key, uint64_t deadline_ms,
		 struct channel **out);

/* Start the thread that lets lanes in. key is copied. */
int porter_open_lanes(struct porter *p, const struct lane_key *key, unsigned lanes);

struct caller {
	int fd;                       /* TCP: hello verified; else -1 */
	struct verbs_caller *verbs;   /* RDMA: token verified; else NULL */
};
/* Wait for the caller of this lane and epoch: until deadline_ms, or abort_fd is readable.
 * The caller is yours. 0, or -1 with OUT_CONNECT. */
int porter_wait(struct porter *p, unsigned lane, uint32_t epoch, int abort_fd,
		uint64_t deadline_ms, struct caller *out);

#endif
