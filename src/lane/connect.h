/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_CONNECT_H
#define LANE_CONNECT_H

/*
 * How a lane comes by a wire: dial a listener, or take a caller that a listener found.
 *
 * Both ends then exchange LANE_HELLO (head.h): the connecting end first (iWARP wants it so,
 * and an accepting end says nothing to a stranger).  After 0 the wire is proven to end at
 * the peer that has the session's secret, for this lane and epoch.
 *
 * Every wait is bounded by the deadline (clock_ms) and ended by lane_abort().
 */

#include <netinet/in.h>
#include <sys/socket.h>
#include "lane/head.h"
#include "lane/lane.h"

union address {
	struct sockaddr sa;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};
socklen_t address_len(const union address *a);
/* "10.0.0.1:7000", "[fe80::1%eth0]:7000"; port 0: without it. Returns to. */
char *address_text(const union address *a, char *to, size_t size);

/* ---- TCP -------------------------------------------------------------------------- */

/* Try all n addresses at once, the first that proves itself wins. */
int tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key, const union address *to,
	     unsigned n, uint64_t deadline_ms, struct wire **out);

/* A connected socket whose LANE_HELLO has been read and verified: answer and make the wire.
 * Owns fd from here on. */
int tcp_take(struct lane *l, uint32_t epoch, const struct lane_key *key, int fd, struct wire **out);

/* Bind and listen on addr (port 0: the first of lo..hi that works, any when lo is 0);
 * returns the descriptor, non-blocking, and the port in *port, or -1. */
int tcp_listen(const union address *addr, unsigned lo, unsigned hi, unsigned *port);

/* ---- RDMA: verbs.c, or verbs_none.c where the build has no rdma-core ---------------- */

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
const struct lane_private *verbs_caller_says(const struct verbs_caller *c);
/* The next caller, *out NULL when there is none now; never waits. -1: the listener is broken. */
int verbs_knock(struct verbs_listener *v, struct verbs_caller **out);
/* Turn it away, without a queue pair having been made. */
void verbs_refuse(struct verbs_caller *c);
/* In the lane's thread: make the queue pair, accept, exchange hellos.  Owns c. */
int verbs_take(struct lane *l, uint32_t epoch, const struct lane_key *key, struct verbs_caller *c,
	       uint64_t deadline_ms, struct wire **out);

/*
 * Locked memory.  What one process may lock for lanes: raises the soft limit to the hard one,
 * UINT64_MAX when unlimited.  (siw counts even with CAP_IPC_LOCK, so no exception for root.)
 */
uint64_t memlock_limit(void);
/*
 * Shrink lanes, then depth, then block size until lanes fit into `limit' bytes of pool and
 * locked rings: *lanes * (pool_bytes + 64 KiB).  False when even 1 lane of 4 x 16 KiB does not.
 */
bool lanes_fit(uint64_t limit, unsigned *lanes, uint32_t *depth, uint32_t *block_size);
/* Record that a lane's `need' bytes could not be locked, with the limit and the remedy. */
int fail_memlock(uint64_t need);
/* The same of another host. */
int fail_memlock_on(const char *host, uint64_t limit, uint64_t need);

#endif
