/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_PORTER_IMPL_H
#define SESSION_CONNECT_PORTER_IMPL_H

/* A porter's inside: listeners and admitting a peer (porter.c), letting lanes in
 * (porter_lanes.c). */

#include <poll.h>
#include <pthread.h>
#include "base/worker.h"
#include "session/connect/porter.h"
#include "session/connect/strangers.h"

enum { LISTENERS_MAX = OFFER_MAX + 2 };

/* Where the caller of one lane waits for the lane's thread. */
struct berth {
	uint32_t next; /* lowest epoch that is still good */
	bool kept;
	struct caller caller;
	int ready; /* eventfd */
};

struct porter {
	union address wanted[LISTENERS_MAX]; /* where to listen for TCP, all on one port */
	int tcp[LISTENERS_MAX];
	unsigned wanted_count, tcp_count, tcp_port;
	struct verbs_listener *rdma[OFFER_MAX];
	unsigned rdma_count, rdma_port;

	struct strangers strangers;
	bool busy; /* a peer was admitted: others are told so */

	struct porter_terms terms;
	struct worker worker;
	int stop; /* eventfd */
	pthread_mutex_t lock; /* of the berths */
	struct berth berths[LANE_COUNT_MAX];
};

/* Poll the listeners: fills in set from n on, returns the new n. */
unsigned porter_poll_listeners(struct porter *p, struct pollfd *set, unsigned n);
/* Let newcomers in. */
void porter_accept(struct porter *p);

#endif
