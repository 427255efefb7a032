/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_PORTER_H
#define SESSION_CONNECT_PORTER_H

/*
 * The porter stands at this end's listeners and sorts out who comes.
 *
 * First (rdrecv): porter_admit() waits for a peer that finishes a TLS handshake with the key.
 * Others may be in the middle of it, so that a silent or wrong one holds up nobody; strangers.h
 * has the limits on them.
 *
 * Then, as a thread: callers for lanes, on TCP (LANE_HELLO in the first bytes) and RDMA
 * (private data), are verified and kept for the lane's thread, which takes them with
 * porter_wait().  Every attempt has an epoch of its own, so what opens a lane is good once; of
 * several callers for a lane the newest epoch's is kept.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/verbs/verbs_connect.h"
#include "protocol/message.h"
#include "session/channel/channel.h"

struct porter;

int porter_new(struct porter **out);
/* Stops the thread, closes listeners and callers that nobody took. NULL is fine. */
void porter_free(struct porter *p);

/*
 * Listen for TCP at addr (NULL: everywhere, IPv4 and IPv6) and one port out of lo..hi (0: any).
 * A porter has one TCP port for all addresses, so the port may change with every call; it is
 * final when it has been told to anybody.  Calls after porter_open_lanes() are a mistake.
 */
int porter_listen_tcp(struct porter *p, const union address *addr, unsigned lo, unsigned hi);
/* Listen for RDMA callers at addr; its port in *port. */
int porter_listen_rdma(struct porter *p, const union address *addr, unsigned lo, unsigned hi,
		       unsigned *port);
/* 0: no TCP listener. */
unsigned porter_tcp_port(const struct porter *p);
/* The first RDMA listener's, 0: there was none. */
unsigned porter_rdma_port(const struct porter *p);

/* Wait for an authenticated peer, until deadline_ms (clock_ms; 0: for ever) or cancelled().
 * -1 with OUT_CONNECT when the time is over, OUT_SIGNAL when cancelled. */
int porter_admit(struct porter *p, const struct psk *key, uint64_t deadline_ms,
		 struct channel **out);

/* What a caller must know and be. */
struct porter_terms {
	struct lane_key key;
	enum lane_side peer; /* the side of those who come */
	unsigned lanes;
	uint32_t depth, block_size;
};
/* Start the thread that lets lanes in; terms are copied. */
int porter_open_lanes(struct porter *p, const struct porter_terms *terms);

struct caller {
	uint32_t epoch;
	int fd; /* TCP: hello verified; else -1 */
	struct verbs_caller *verbs; /* RDMA: token verified; else NULL */
};
void caller_drop(struct caller *c);
/* Wait for a caller of this lane with at least this epoch, until deadline_ms (0: for ever).
 * 0: the caller is yours; 1: wake_fd is readable; -1 with OUT_CONNECT when the time is over. */
int porter_wait(struct porter *p, unsigned lane, uint32_t epoch, int wake_fd, uint64_t deadline_ms,
		struct caller *out);

#endif
