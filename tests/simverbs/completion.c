/* SPDX-License-Identifier: Apache-2.0 */
#include "completion.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "async.h"
#include "device.h"
#include "misuse.h"
#include "operations.h"
#include "order.h"
#include "queue_pair.h"
#include "region.h"
#include "tally.h"

enum { CQE_BYTES = 64 };

struct channel {
	struct ibv_comp_channel channel;
	pthread_mutex_t lock;
	struct completion *first;
	struct channel *next; /* of all */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct channel *all;

static struct channel *channel_of(struct ibv_comp_channel *c)
{
	return (struct channel *)c;
}

/* A child cannot use its parent's. */
static void forget_parent(void)
{
	pthread_mutex_init(&all_lock, NULL);
	all = NULL;
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

/* ---- channels --------------------------------------------------------------------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *c;

	FAIL_IF_ORDERED(NULL);
	FAIL_IF_GONE(context, NULL);
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->channel.context = context;
	c->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	pthread_mutex_init(&c->lock, NULL);
	if (c->channel.fd < 0) {
		free(c);
		return NULL;
	}
	pthread_mutex_lock(&all_lock);
	c->next = all;
	all = c;
	pthread_mutex_unlock(&all_lock);
	tally_add(TALLY_CHANNELS);
	return &c->channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct channel *c = channel_of(channel), **at = &all;
	int ordered = order_failure(__func__);

	pthread_mutex_lock(&all_lock);
	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&all_lock);
	if (c->first)
		misuse("ibv_destroy_comp_channel: a completion queue still uses it");
	tally_remove(TALLY_CHANNELS);
	/* Of a queue that could not be destroyed: it can never be, either. */
	if (channel->refcnt || ordered) {
		device_keep_object(c);
		return ordered ? ordered : EBUSY;
	}
	close(channel->fd);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return 0;
}

void completion_end_channels(void)
{
	uint64_t many = (uint64_t)1 << 40;

	pthread_mutex_lock(&all_lock);
	for (struct channel *c = all; c; c = c->next)
		if (device_is_gone(c->channel.context) &&
		    write(c->channel.fd, &many, sizeof many) < 0)
			misuse("write to a completion channel: %s", strerror(errno));
	pthread_mutex_unlock(&all_lock);
}

static struct completion *find_event(struct channel *c)
{
	for (struct completion *q = c->first; q; q = q->next)
		if (atomic_load(&q->area->events)) {
			atomic_fetch_sub(&q->area->events, 1);
			return q;
		}
	return NULL;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct channel *c = channel_of(channel);
	struct completion *q;
	uint64_t one;

	FAIL_IF_ORDERED(-1);
	do {
		if (read(channel->fd, &one, sizeof one) < 0)
			return -1;
		FAIL_IF_GONE(channel->context, -1);
		pthread_mutex_lock(&c->lock);
		q = find_event(c);
		pthread_mutex_unlock(&c->lock);
	} while (!q);
	*cq = &q->cq;
	*context = q->cq.cq_context;
	pthread_mutex_lock(&q->lock);
	q->cq.async_events_completed++; /* those taken; never of async events */
	pthread_mutex_unlock(&q->lock);
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	struct completion *q = completion_of(cq);

	pthread_mutex_lock(&q->lock);
	cq->comp_events_completed += n;
	if (cq->comp_events_completed > cq->async_events_completed)
		misuse("ibv_ack_cq_events: more than there were");
	pthread_mutex_unlock(&q->lock);
}

/* ---- queues ----------------------------------------------------------------------------- */

int completion_channel_fd(const struct completion *c)
{
	return c->cq.channel ? c->cq.channel->fd : -1;
}

static void enter_channel(struct completion *q)
{
	struct channel *c = channel_of(q->cq.channel);

	pthread_mutex_lock(&c->lock);
	q->next = c->first;
	c->first = q;
	c->channel.refcnt++;
	pthread_mutex_unlock(&c->lock);
}

/* Events that nobody took go with their queue. */
static void leave_channel(struct completion *q)
{
	struct channel *c = channel_of(q->cq.channel);
	struct completion **at = &c->first;
	uint32_t events;
	uint64_t one;

	pthread_mutex_lock(&c->lock);
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	c->channel.refcnt--;
	events = atomic_load(&q->area->events);
	while (events-- > 0)
		if (read(c->channel.fd, &one, sizeof one) < 0)
			break;
	pthread_mutex_unlock(&c->lock);
}

static void free_completion(struct completion *q)
{
	area_unmap(q->area, sizeof *q->area);
	if (q->area_fd >= 0)
		close(q->area_fd);
	memory_unlock(q->locked);
	free(q->users);
}

/* What the adapter makes of what was asked for. */
static uint32_t round_entries(uint32_t cqe, const struct personality *p)
{
	uint32_t entries = cqe + p->cqe_reserved, unit = p->round_cqe;

	if (unit == 1)
		entries = device_round(entries);
	else if (unit)
		entries = (entries + unit - 1) / unit * unit;
	return entries - p->cqe_reserved;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	const struct personality *p = &adapter_of(context)->p;
	struct completion *q;

	FAIL_IF_ORDERED(NULL);
	FAIL_IF_GONE(context, NULL);
	if (cqe <= 0 || (uint32_t)cqe > p->max_cqe || vector < 0 ||
	    vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->area_fd = -1;
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = cq_context;
	q->cq.cqe = (int)round_entries((uint32_t)cqe, p);
	pthread_mutex_init(&q->lock, NULL);
	if (p->queues_locked) {
		q->locked = ((uint64_t)q->cq.cqe * CQE_BYTES + 4095) & ~(uint64_t)4095;
		if (memory_lock(p, q->locked)) {
			q->locked = 0;
			goto failed;
		}
	}
	q->area = area_new("simverbs-completions", sizeof *q->area, &q->area_fd);
	if (!q->area)
		goto failed;
	if (channel)
		enter_channel(q);
	tally_add(TALLY_QUEUES);
	return &q->cq;
failed:
	free_completion(q);
	free(q);
	return NULL;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct ibv_comp_channel *channel = cq->channel;
	int rc, ordered = order_failure(__func__);
	struct completion *q = completion_of(cq);

	if (q->count)
		misuse("ibv_destroy_cq: a queue pair still uses it");
	if (cq->comp_events_completed != cq->async_events_completed)
		misuse("ibv_destroy_cq: %u events were not acknowledged",
		       cq->async_events_completed - cq->comp_events_completed);
	async_drop_completion(q);
	if (cq->channel)
		leave_channel(q);
	tally_remove(TALLY_QUEUES);
	free_completion(q);
	rc = device_end_object(cq->context, q, ordered);
	/* libibverbs counts only what it has destroyed. */
	if (rc && channel)
		channel->refcnt++;
	return rc;
}

int completion_join(struct completion *c, struct queue_pair *q)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->count; i++)
		if (c->users[i] == q)
			goto out;
	if (c->count == c->room) {
		unsigned room = c->room ? 2 * c->room : 4;
		struct queue_pair **users = realloc(c->users, room * sizeof *users);

		rc = users ? 0 : -1;
		if (rc)
			goto out;
		c->users = users;
		c->room = room;
	}
	c->users[c->count++] = q;
out:
	pthread_mutex_unlock(&c->lock);
	return rc;
}

void completion_leave(struct completion *c, struct queue_pair *q)
{
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->count; i++)
		if (c->users[i] == q) {
			c->users[i] = c->users[--c->count];
			break;
		}
	pthread_mutex_unlock(&c->lock);
}

/* An adapter would have written more entries than there is room for. */
static void check_overrun(struct completion *c)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < c->count; i++)
		n += queue_pair_completed(c->users[i], c);
	if (n > (uint64_t)c->cq.cqe)
		misuse("completion queue of %d overruns: %llu completions", c->cq.cqe,
		       (unsigned long long)n);
}

int completion_poll(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	struct completion *c = completion_of(cq);
	int n = 0, ordered = order_failure("ibv_poll_cq");

	if (ordered)
		return -ordered;
	if (device_is_gone(cq->context) || atomic_load(&c->dead))
		return 0;
	pthread_mutex_lock(&c->lock);
	check_overrun(c);
	for (unsigned i = 0; i < c->count && n < most; i++)
		n += queue_pair_reap(c->users[(c->turn + i) % c->count], c, most - n, wc + n);
	if (c->count)
		c->turn = (c->turn + 1) % c->count;
	pthread_mutex_unlock(&c->lock);
	return n;
}

int completion_arm(struct ibv_cq *cq, int solicited)
{
	struct completion *c = completion_of(cq);
	uint32_t wish = solicited ? WISH_SOLICITED : WISH_ANY, before = WISH_NONE;
	int ordered = order_failure("ibv_req_notify_cq");

	if (ordered || device_is_gone(cq->context))
		return ordered ? ordered : EIO;
	/* A weaker wish does not take the place of a stronger one. */
	while (before < wish && !atomic_compare_exchange_weak(&c->area->armed, &before, wish))
		;
	return 0;
}
