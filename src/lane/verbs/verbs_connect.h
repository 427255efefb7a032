/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_VERBS_VERBS_CONNECT_H
#define LANE_VERBS_VERBS_CONNECT_H

/* Wires over RDMA; connect.h has the rules.  verbs_none.c is a build without rdma-core. */

#include "lane/connect.h"

bool verbs_built(void);

/* Is there an RDMA device with an active port on this host; if not, why (for people). */
bool verbs_present(char *why, size_t size);

/* Does an RDMA device stand behind this local address (without opening more than librdmacm
 * needs)?  Only after authentication. */
bool verbs_behind(const union address *addr);

/* Resolve and connect to one listener, from one of this host's addresses (NULL: as the routes say).
 * OUT_TRANSPORT: RDMA can't be used for that address at
 * all, OUT_MEMLOCK: nor anywhere; OUT_CONNECT: nobody there, refused, or no answer. */
int verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
	       const union address *from, const union address *to, uint64_t deadline_ms,
	       struct wire **out);

/* A listener on one address. Its descriptor polls readable when a caller may be there. */
struct verbs_listener;
int verbs_listen(const union address *addr, unsigned lo, unsigned hi, unsigned *port,
		 struct verbs_listener **out);
void verbs_unlisten(struct verbs_listener *v);
int verbs_listener_fd(const struct verbs_listener *v);

/* A connection request whose private data was decoded; the token has not been checked. */
struct verbs_caller;
const struct lane_private *verbs_caller_request(const struct verbs_caller *c);
/* The next caller, *out NULL when there is none now; never waits. -1: the listener is broken. */
int verbs_next_caller(struct verbs_listener *v, struct verbs_caller **out);
/* Turn it away, without a queue pair having been made. */
void verbs_refuse(struct verbs_caller *c);
/* In the lane's thread: make the queue pair, accept, exchange hellos.  Owns c. */
int verbs_take(struct lane *l, uint32_t epoch, const struct lane_key *key, struct verbs_caller *c,
	       uint64_t deadline_ms, struct wire **out);

#endif
