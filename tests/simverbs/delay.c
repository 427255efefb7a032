/* SPDX-License-Identifier: Apache-2.0 */
#include "delay.h"

#include <pthread.h>
#include <time.h>
#include "host.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t free_ats[HOST_ADAPTERS][HOST_PORTS + 1]; /* when the last message has left */
static uint64_t count;

uint64_t delay_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void delay_message(const struct host_adapter *a, unsigned port, uint64_t bytes, uint64_t repeat_ns,
		   uint64_t *arrives, uint64_t *acked)
{
	const struct host *h = host_get();
	uint64_t *free_at = &free_ats[a->index][port], now,
		 latency_ns = (uint64_t)h->latency_us * 1000;

	*arrives = *acked = 0;
	if (!h->bandwidth_mbits && !h->latency_us && !h->loss)
		return;
	now = delay_now();
	pthread_mutex_lock(&lock);
	if (*free_at < now)
		*free_at = now;
	if (h->bandwidth_mbits)
		*free_at += bytes * 8000 / h->bandwidth_mbits;
	*arrives = *free_at + latency_ns;
	if (h->loss && ++count % h->loss == 0)
		*arrives += repeat_ns;
	pthread_mutex_unlock(&lock);
	*acked = *arrives + latency_ns;
}
