/* SPDX-License-Identifier: Apache-2.0 */

/* Event channels of the connection manager, and those that a process reserves before it is
 * confined. */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "lane/verbs/verbs_impl.h"

enum {
	/* of a wire, of memory that is prepared for the next one, and of a caller that waits */
	CHANNELS_OF_LANE = 3,
	CHANNELS_BESIDE = 2, /* to look for an adapter, and of a caller that is refused */
	CHANNELS_MOST = 256,
};

static struct {
	pthread_mutex_t lock;
	bool active; /* since verbs_reserve() */
	bool present; /* what verbs_present() returned then */
	char why[256];
	struct rdma_event_channel *free[CHANNELS_MOST];
	unsigned count; /* of them */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct rdma_event_channel *verbs_channel_open(void)
{
	struct rdma_event_channel *c = NULL;

	if (!reserve.active)
		return rdma_create_event_channel();
	pthread_mutex_lock(&reserve.lock);
	if (reserve.count > 0)
		c = reserve.free[--reserve.count];
	pthread_mutex_unlock(&reserve.lock);
	if (!c)
		errno = EMFILE;
	return c;
}

void verbs_channel_close(struct rdma_event_channel *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&reserve.lock);
	/* Without ids a channel has no events. */
	if (reserve.active && reserve.count < CHANNELS_MOST) {
		reserve.free[reserve.count++] = c;
		c = NULL;
	}
	pthread_mutex_unlock(&reserve.lock);
	if (c)
		rdma_destroy_event_channel(c);
}

bool verbs_is_reserved(bool *present, char *why, size_t size)
{
	if (!reserve.active)
		return false;
	*present = reserve.present;
	if (size)
		snprintf(why, size, "%s", reserve.why);
	return true;
}

void verbs_load(void)
{
	struct ibv_device **all = ibv_get_device_list(NULL);

	if (all)
		ibv_free_device_list(all);
}

/* Returns 0, or -1 with errno; those that were opened stay. */
static int open_channels(unsigned wanted)
{
	while (reserve.count < wanted && reserve.count < CHANNELS_MOST) {
		struct rdma_event_channel *c = rdma_create_event_channel();

		if (!c)
			return -1;
		reserve.free[reserve.count++] = c;
	}
	return 0;
}

void verbs_reserve(const union address *at, unsigned count, unsigned lanes)
{
	bool present = verbs_present(reserve.why, sizeof reserve.why);

	if (present && open_channels(count + lanes * CHANNELS_OF_LANE + CHANNELS_BESIDE)) {
		snprintf(reserve.why, sizeof reserve.why, "open event channels: %s",
			 strerror(errno));
		present = false;
	}
	reserve.present = present;
	reserve.active = true;
	/* librdmacm opens an adapter when it is first used, and keeps it open. */
	for (unsigned i = 0; present && i < count; i++)
		(void)verbs_behind(&at[i]);
	if (!present)
		verbs_release();
}

void verbs_release(void)
{
	pthread_mutex_lock(&reserve.lock);
	while (reserve.count > 0)
		rdma_destroy_event_channel(reserve.free[--reserve.count]);
	pthread_mutex_unlock(&reserve.lock);
}
