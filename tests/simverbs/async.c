/* SPDX-License-Identifier: Apache-2.0 */
#include "async.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "completion.h"
#include "device.h"
#include "misuse.h"
#include "order.h"
#include "queue_pair.h"

enum { ACK_WAIT_S = 2 };

struct async {
	struct ibv_async_event event;
	struct async *next;
};

/* Of all contexts' events, and of the counts of events that were taken. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

static void forget_parent(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&acked, NULL);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

/* The count of the event's object; NULL: the event is a port's or the device's. */
static unsigned *find_count(const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &completion_of(e->element.cq)->async_taken;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &queue_pair_of(e->element.qp)->async_taken;
	default:
		return NULL;
	}
}

/* ---- reporting -------------------------------------------------------------------------- */

static void append_event(struct context *c, const struct ibv_async_event *e)
{
	struct async *a = calloc(1, sizeof *a), **at = &c->events;
	uint64_t one = 1;

	if (!a)
		misuse("out of memory");
	a->event = *e;
	pthread_mutex_lock(&lock);
	while (*at)
		at = &(*at)->next;
	*at = a;
	if (write(c->verbs.context.async_fd, &one, sizeof one) < 0)
		misuse("write to async_fd: %s", strerror(errno));
	pthread_mutex_unlock(&lock);
}

void async_report_pair(struct queue_pair *q, enum ibv_event_type what)
{
	struct ibv_async_event e = {.event_type = what, .element.qp = &q->qp};

	append_event(context_of(q->qp.context), &e);
}

void async_report_completion(struct completion *c, enum ibv_event_type what)
{
	struct ibv_async_event e = {.event_type = what, .element.cq = &c->cq};

	append_event(context_of(c->cq.context), &e);
}

void async_report(struct context *c, unsigned port, enum ibv_event_type what)
{
	struct ibv_async_event e = {.event_type = what, .element.port_num = (int)port};

	append_event(c, &e);
}

void async_end(struct context *c)
{
	uint64_t many = (uint64_t)1 << 40;

	if (write(c->verbs.context.async_fd, &many, sizeof many) < 0)
		misuse("write to async_fd: %s", strerror(errno));
}

/* ---- taking ----------------------------------------------------------------------------- */

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct context *c = context_of(context);
	struct async *a;
	uint64_t one;

	FAIL_IF_ORDERED(-1);
	do {
		if (read(context->async_fd, &one, sizeof one) < 0)
			return -1;
		pthread_mutex_lock(&lock);
		a = c->events;
		if (a) {
			unsigned *taken = find_count(&a->event);

			c->events = a->next;
			if (taken)
				++*taken;
		}
		pthread_mutex_unlock(&lock);
		/* uverbs_main.c, ib_uverbs_event_read(): of a device that is gone */
		if (!a && atomic_load(&c->gone)) {
			errno = EIO;
			return -1;
		}
	} while (!a);
	*event = a->event;
	free(a);
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	unsigned *taken;

	pthread_mutex_lock(&lock);
	taken = find_count(event);
	if (taken && (*taken)-- == 0)
		misuse("ibv_ack_async_event: the event was acknowledged already");
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&lock);
}

/* ---- dropping --------------------------------------------------------------------------- */

/* taken NULL: all events. */
static void drop_events(struct context *c, const unsigned *taken)
{
	struct pollfd p = {.fd = c->verbs.context.async_fd, .events = POLLIN};
	struct async **at = &c->events, *a;
	uint64_t one;

	while ((a = *at)) {
		if (taken && find_count(&a->event) != taken) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		free(a);
		if (poll(&p, 1, 0) > 0 && read(p.fd, &one, sizeof one) < 0)
			misuse("read from async_fd: %s", strerror(errno));
	}
}

static void drop_object(struct ibv_context *context, const unsigned *taken, const char *call)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ACK_WAIT_S;
	pthread_mutex_lock(&lock);
	drop_events(context_of(context), taken);
	while (*taken)
		if (pthread_cond_timedwait(&acked, &lock, &until))
			misuse("%s: %u async events were not acknowledged", call, *taken);
	pthread_mutex_unlock(&lock);
}

void async_drop_pair(struct queue_pair *q)
{
	drop_object(q->qp.context, &q->async_taken, "rdma_destroy_qp");
}

void async_drop_completion(struct completion *c)
{
	drop_object(c->cq.context, &c->async_taken, "ibv_destroy_cq");
}

void async_drop_all(struct context *c)
{
	pthread_mutex_lock(&lock);
	drop_events(c, NULL);
	pthread_mutex_unlock(&lock);
}
