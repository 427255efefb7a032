/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_VERBS_DOOR_H
#define TESTS_VERBS_DOOR_H

/*
 * Two hosts with RDMA, as SLUICE_TRANSPORT names them (rxe, siw, sim, device), and a listener on
 * one of them that acts as a porter: it sorts callers by lane until a lane asks for them.
 */

#include <pthread.h>
#include <stdbool.h>
#include "lane/connect.h"
#include "lane/verbs/verbs_connect.h"
#include "lane_pair.h"

struct host {
	const char *address, *address6; /* NULL: it has none */
	const char *netns; /* NULL: all hosts are in one namespace */
	/* An unused address of a neighbour, and the arguments of ip(8) that make it known (device
	 * NULL: it is known). */
	const char *silent, *device, *ip_option;
};
/* The dialing host, and the listening host. */
extern struct host near, far;

/* Promised times may take this many times as long here. */
extern unsigned slow;

/* The data operation: SLUICE_RDMA_OP as for --rdma-op; SEND if it is not set. */
extern enum rdma_op door_op;
/* Of the lanes of door_lane(), which then demand it: enum cipher_kind, 0 unless a test sets it. Its
 * keys are made of door_key. */
extern unsigned door_cipher;
extern const struct lane_key door_key;

/* The adapter is an iWARP adapter: it has no write with immediate. */
extern bool door_iwarp;
/* It is rxe or siw, also simulated. */
extern bool door_software;
/* "rxe", "connectx-ib"; "device" */
extern const char *door_adapter;

/* Sets all of these. False when no hosts are named. */
bool hosts_find(void);
/* Moves the calling thread, and threads that it starts, to that host. */
void host_enter(const struct host *h);
union address host_address(const char *text, unsigned port);
/* Calls fn(arg) in a thread on that host. */
void *host_call(const struct host *h, void *(*fn)(void *), void *arg);

struct door {
	struct verbs_listener *listener;
	unsigned port;
	const char *address; /* on far */
	pthread_mutex_t lock;
	struct verbs_caller *callers[PAIR_LANES];
};

/* On far, on any port; address NULL: its IPv4 address. */
int door_open(struct door *d, const char *address);
void door_close(struct door *d);
/*
 * Waits for the caller of this lane and epoch with the right token, and makes a wire of it; refuses
 * all others.
 */
int door_take(struct door *d, struct lane *l, uint32_t epoch, const struct lane_key *key,
	      uint64_t deadline_ms, struct wire **out);
int door_dial(struct door *d, struct lane *l, uint32_t epoch, const struct lane_key *key,
	      uint64_t deadline_ms, struct wire **out);

/* For a struct backend: a door as its state, and which side listens. */
int door_pair_open(void **state);
void door_pair_close(void *state);
int door_join_as(enum lane_side listens, void *state, struct lane *l, uint32_t epoch,
		 const struct lane_key *key, uint64_t deadline_ms, struct wire **out);
int door_join_by_turns(void *state, struct lane *l, uint32_t epoch, const struct lane_key *key,
		       uint64_t deadline_ms, struct wire **out);

/*
 * Lane 0 of one end, with door_op, NULL on failure; and a mend function for a lane that gets no
 * second wire.
 */
struct lane *door_lane(enum lane_side side, uint32_t depth, uint32_t block_size, lane_mend_fn mend,
		       void *ctx);
int door_never(void *ctx, struct lane *l, uint32_t epoch, const char *why);

/* The count of receiver-not-ready errors on all adapters that count them. */
unsigned long long door_not_ready(void);

#endif
