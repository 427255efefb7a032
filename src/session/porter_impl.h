/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_PORTER_IMPL_H
#define SESSION_PORTER_IMPL_H

/* A porter's inside: listeners and strangers (porter.c), letting lanes in (porter_lanes.c). */

#include <poll.h>
#include <pthread.h>
#include "base/worker.h"
#include "session/porter.h"

enum {
	LISTENERS_MAX = OFFER_MAX + 2,
	/* After the system had no descriptor left for another connection. */
	ACCEPT_PAUSE_MS = 100,
};

/* A connection of whom nothing is known yet. */
struct stranger {
	int fd;
	uint64_t since; /* clock_ms */
	unsigned polled; /* where it is in the set that was polled, 0: it was not */
	bool spoke; /* at least its first byte came */
	struct channel *tls; /* owns fd, when it is there */
	uint64_t sat; /* clock_ms, since when it has had that */
	uint8_t said[LANE_HELLO_SIZE];
	size_t said_len;
};

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

	struct stranger strangers[STRANGERS_MAX]; /* oldest first */
	unsigned count;
	uint64_t accept_after; /* clock_ms */

	struct porter_terms terms;
	struct worker worker;
	int stop; /* eventfd */
	pthread_mutex_t lock; /* of the berths */
	struct berth berths[LANE_COUNT_MAX];
};

/* Poll the listeners: fills in set from n on, returns the new n. */
unsigned porter_poll_listeners(struct porter *p, struct pollfd *set, unsigned n);
/* Let newcomers in, the oldest silent ones go for them. */
void porter_accept(struct porter *p);
void stranger_leave(struct porter *p, unsigned i);
void strangers_leave(struct porter *p);
/* When the first one's time is over (clock_ms), 0: there is none. */
uint64_t strangers_due(const struct porter *p, uint64_t patience_ms);
/* Those whose time is over leave. */
void strangers_expire(struct porter *p);

#endif
