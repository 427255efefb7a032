/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_VERBS_VERBS_CONNECT_H
#define LANE_VERBS_VERBS_CONNECT_H

/* Wires over RDMA; the rules of connect.h apply. A build without rdma-core uses verbs_none.c. */

#include "lane/connect.h"

struct verbs;

bool verbs_built(void);

/* Returns true if this host has an RDMA device with an active port; else why gets the reason, for
 * messages. */
bool verbs_present(char *why, size_t size);

/* Returns true if this local address belongs to an RDMA device. Opens no more than librdmacm needs.
 * Call it only after authentication. */
bool verbs_behind(const union address *addr);

/*
 * For a process that cannot open devices for ever, because it will be confined to a directory. The
 * kernel takes requests only with the credentials with which the device was opened. So:
 *
 * verbs_load() loads the drivers, while the process can still open their files. verbs_reserve()
 * opens the adapters of its `count' addresses and event channels for as many lanes and listeners,
 * once its credentials are final. From then on this process opens nothing more, and verbs_present()
 * returns what it was then. verbs_release() closes the channels that nothing uses.
 */
void verbs_load(void);
void verbs_reserve(const union address *at, unsigned count, unsigned lanes);
void verbs_release(void);

/*
 * Resolves and connects to one listener, from one of this host's addresses (NULL: as routing
 * chooses). Returns 0; -1 with a failure; DIAL_AGAIN with a failure if another attempt, of a new
 * epoch, may succeed soon: an address or route was not found, or the request had no answer for as
 * long as the attempts have lasted since began_ms (at least 0.5 s; clock_ms), with as much time
 * left; or DIAL_PEER_KNOWS with a failure if it was the peer that gave the attempt up. It sends the
 * reason as LANE_DOWN of this epoch.
 * *prepared (it or prepared may be NULL) is memory that is registered already: verbs_prepare(). A
 * wire that was connected has taken or freed it; an attempt that failed may leave its own there.
 * OUT_TRANSPORT: RDMA cannot be used for that address at all. OUT_MEMLOCK: RDMA cannot be used for
 * any address. OUT_CONNECT: no listener, rejected, or no answer.
 */
enum { DIAL_AGAIN = 1, DIAL_PEER_KNOWS };
int verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
	       const union address *from, const union address *to, struct verbs **prepared,
	       uint64_t began_ms, uint64_t deadline_ms, struct wire **out);

/* Finds out whether a listener can be reached over RDMA, without a wire: by a request for epoch 0
 * of this lane, which the peer's porter refuses, because the lane has had a wire. May be called by
 * another thread than the lane's; lane_abort() ends it. Returns 0 if the request was refused. */
int verbs_knock(struct lane *l, const struct lane_key *key, const union address *from,
		const union address *to, uint64_t deadline_ms);

/* A listener on one address. Its descriptor polls readable when a caller may be waiting. */
struct verbs_listener;
int verbs_listen(const union address *addr, unsigned lo, unsigned hi, unsigned tos, unsigned *port,
		 struct verbs_listener **out);
void verbs_unlisten(struct verbs_listener *v);
int verbs_listener_fd(const struct verbs_listener *v);
/* Whether the listener's device was removed. */
bool verbs_listener_is_lost(const struct verbs_listener *v);
/* Listens again at the same address and port. Returns false if there is no device yet. */
bool verbs_relisten(struct verbs_listener *v);

/* A connection request with decoded private data; its token is not checked yet. */
struct verbs_caller;
const struct lane_private *verbs_caller_request(const struct verbs_caller *c);
/* Returns the next caller in *out, NULL if there is none now; never waits. -1: the listener is
 * broken, or its device was removed. */
int verbs_next_caller(struct verbs_listener *v, struct verbs_caller **out);
/* Rejects the caller without having made a queue pair. */
void verbs_refuse(struct verbs_caller *c);
/* Registers the lane's memory with the device behind a local address, for a wire that will be made.
 * The lane may use another wire meanwhile, so any thread may do it; it does not stop the lane's
 * clock. */
int verbs_prepare(struct lane *l, const union address *at, struct verbs **out);
/* v may be NULL. */
void verbs_unprepare(struct verbs *v);
/* Makes the queue pair, accepts, and exchanges hellos. In the lane's thread. Owns c. prepared: as
 * with verbs_dial(). */
int verbs_take(struct lane *l, uint32_t epoch, const struct lane_key *key, struct verbs_caller *c,
	       struct verbs **prepared, uint64_t deadline_ms, struct wire **out);

#endif
