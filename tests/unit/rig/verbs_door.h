/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_VERBS_DOOR_H
#define TESTS_VERBS_DOOR_H

/*
 * Two hosts with RDMA, as SLUICE_TRANSPORT names them (rxe, siw, device), and a listener on one
 * of them with what a porter does there: callers are sorted by lane until somebody asks.
 */

#include <pthread.h>
#include <stdbool.h>
#include "lane/connect.h"
#include "lane/verbs/verbs_connect.h"
#include "lane_pair.h"

struct host {
	const char *address, *address6; /* NULL: it has none */
	const char *netns; /* NULL: everything is in one */
	/* A neighbour's address that nobody has, and what ip needs to make him known. */
	const char *silent, *device, *ip_option;
};
/* Who dials, and who listens. */
extern struct host near, far;

/* What is promised in time may take so many times as long here. */
extern unsigned slow;

/* How blocks go: SLUICE_RDMA_OP as --rdma-op has it; SEND when it is not set. */
extern enum rdma_op door_op;

/* Sets all of these.  False when no hosts are named. */
bool hosts_find(void);
/* The calling thread, and those that it starts, are on that host from now on. */
void host_enter(const struct host *h);
union address host_address(const char *text, unsigned port);
/* Call fn(arg) in a thread that is on that host. */
void *host_call(const struct host *h, void *(*fn)(void *), void *arg);

struct door {
	struct verbs_listener *listener;
	unsigned port;
	const char *address; /* of far */
	pthread_mutex_t lock;
	struct verbs_caller *callers[PAIR_LANES];
};

/* At far, on any port; address NULL: its IPv4 address. */
int door_open(struct door *d, const char *address);
void door_close(struct door *d);
/* Wait for the caller of this lane and epoch with the right token, and make a wire of it; all
 * others are refused. */
int door_take(struct door *d, struct lane *l, uint32_t epoch, const struct lane_key *key,
	      uint64_t deadline_ms, struct wire **out);
int door_dial(struct door *d, struct lane *l, uint32_t epoch, const struct lane_key *key,
	      uint64_t deadline_ms, struct wire **out);

/* Lane 0 of one end, with door_op, NULL when that fails; and a mend function for one that is only
 * to be had. */
struct lane *door_lane(enum lane_side side, uint32_t depth, uint32_t block_size, lane_mend_fn mend,
		       void *ctx);
int door_never(void *ctx, struct lane *l, uint32_t epoch, const char *why);

/* How often a receiver was not ready so far, on all adapters that count it. */
unsigned long long door_not_ready(void);

#endif
