/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_PORTER_IMPL_H
#define SESSION_CONNECT_PORTER_IMPL_H

/* The private parts of a porter: listeners and admission of a peer (porter.c), admission of lanes
 * (porter_lanes.c). */

#include <poll.h>
#include <pthread.h>
#include "base/fail.h"
#include "base/worker.h"
#include "session/connect/porter.h"
#include "session/connect/strangers.h"

enum { LISTENERS_MAX = OFFER_MAX + 3 };

/* Keeps the caller of one lane until the lane's thread takes it. */
struct berth {
	uint32_t next; /* the lowest epoch that is still valid */
	bool kept;
	struct caller caller;
	int ready; /* eventfd */
};

struct porter {
	union address wanted[LISTENERS_MAX]; /* where to listen for TCP, all on one port */
	int tcp[LISTENERS_MAX];
	unsigned wanted_count, tcp_count, tcp_port;
	int door; /* -1: none */
	struct failure door_lost; /* why it can no longer be used; OUT_DONE: it can */
	struct verbs_listener *rdma[OFFER_MAX];
	union address rdma_at[OFFER_MAX]; /* where these listen */
	unsigned rdma_count, rdma_port;
	unsigned tos;
	/* When to try listeners whose device was removed; 0: there are none. */
	uint64_t relisten_ms;

	struct strangers strangers;
	bool admitted; /* a peer was admitted: others get an alert */

	/* an unauthenticated connection was reported: others are only debug */
	bool tcp_rejected, rdma_rejected;

	struct porter_terms terms;
	struct worker worker;
	int stop; /* eventfd */
	pthread_mutex_t lock; /* protects the berths, and what follows them */
	struct berth berths[LANE_COUNT_MAX];
	struct failure broken; /* why the thread has ended early; OUT_DONE: it has not */
	int lacked; /* as in struct strangers; 0 if a caller came after that */
	uint64_t lacked_ms;
};

/* Adds the listeners to set from index n on; returns the new n. */
unsigned porter_poll_listeners(struct porter *p, struct pollfd *set, unsigned n);
/* Accepts new connections. */
void porter_accept(struct porter *p);

#endif
