/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_REMOTE_H
#define SIMVERBS_REMOTE_H

/* A peer's queue pair and regions as they are mapped here. */

#include <pthread.h>
#include <stdbool.h>
#include "area.h"
#include "message.h"

struct remote_region {
	uint32_t key;
	uint64_t first; /* of its pages, in the peer's addresses */
	uint8_t *at; /* here */
	size_t bytes;
};

struct remote {
	pthread_mutex_t lock; /* of regions; taken after a queue pair's */
	struct queue_area *queue;
	struct completion_area *completions;
	const struct region_area *table;
	size_t queue_bytes, completions_bytes, table_bytes;
	int channel;
	struct remote_region *regions;
	unsigned count;
	/* What our sends to it may do, and after which time (4.096 us * 2^N) they are repeated. */
	uint8_t retry_count, rnr_retry_count, ack_timeout;
	uint8_t tos; /* of our packets to it */
};

void remote_init(struct remote *r);
/* Unmaps all; nothing uses it any more. */
void remote_clear(struct remote *r);
/* Maps a peer's queue pair. Owns the descriptors. Returns 0, or -1 with errno. */
int remote_map_queue(struct remote *r, int *fds, unsigned count);
/* Maps a region. Owns the descriptors. Returns 0, or -1 with errno. */
int remote_map_region(struct remote *r, const struct message_region *m, int *fds, unsigned count);
void remote_unmap_region(struct remote *r, uint32_t key);
/* The address here of a range that the table allows; NULL: the region has not arrived. Under the
 * lock. */
uint8_t *remote_at(const struct remote *r, uint32_t key, uint64_t addr);

#endif
