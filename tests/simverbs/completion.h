/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_COMPLETION_H
#define SIMVERBS_COMPLETION_H

/* Completion queues and channels. A queue holds nothing itself: it collects what its queue pairs
 * have completed. */

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include "area.h"

struct queue_pair;

struct completion {
	struct ibv_cq cq;
	struct completion_area *area;
	int area_fd;
	pthread_mutex_t lock; /* of users, and held to poll; taken before a queue pair's */
	struct queue_pair **users; /* queue pairs, sending or receiving */
	unsigned count, room, turn;
	uint64_t locked;
	unsigned async_taken; /* async.c */
	_Atomic bool dead; /* after CQ_ERR: nothing comes any more */
	struct completion *next; /* of the same channel */
};
static inline struct completion *completion_of(struct ibv_cq *cq)
{
	return (struct completion *)cq;
}
/* The descriptor of its channel, or -1. */
int completion_channel_fd(const struct completion *c);

/* All channels become readable for good, and have no events any more. */
void completion_end_channels(void);

/* Adds or removes a queue pair. Adding it twice has no effect. Returns 0, or -1 with errno. */
int completion_join(struct completion *c, struct queue_pair *q);
void completion_leave(struct completion *c, struct queue_pair *q);

#endif
