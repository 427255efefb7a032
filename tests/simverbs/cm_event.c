/* SPDX-License-Identifier: Apache-2.0 */

/* Event channels of the connection manager. */

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "cm.h"
#include "misuse.h"
#include "order.h"
#include "plug.h"
#include "tally.h"

enum { ACK_WAIT_S = 5 };

/* Signalled with each acknowledgement. */
static pthread_mutex_t ack_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *c;
	int rc;

	FAIL_IF_ORDERED(NULL);
	if (!host_get() || plug_is_pulled(NULL)) {
		errno = ENODEV;
		return NULL;
	}
	engine_lock();
	plug_on_removal(cm_remove_all);
	rc = engine_start() || plug_start() ? -1 : 0;
	engine_unlock();
	c = rc ? NULL : calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (c->channel.fd < 0) {
		free(c);
		return NULL;
	}
	tally_add(TALLY_EVENT_CHANNELS);
	return &c->channel;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *c = cm_channel_of(channel);

	engine_lock();
	if (c->first)
		misuse("rdma_destroy_event_channel: an id still has events on it");
	engine_unlock();
	tally_remove(TALLY_EVENT_CHANNELS);
	close(channel->fd);
	free(c);
}

/* ---- queueing --------------------------------------------------------------------------- */

/* An event belongs to the listener as long as nobody has taken the caller's id. */
static struct cm_id *event_owner(const struct cm_event *e)
{
	return cm_id_of(e->event.listen_id ? e->event.listen_id : e->event.id);
}

static void append_event(struct cm_channel *c, struct cm_event *e)
{
	struct cm_event **at = &c->first;
	uint64_t one = 1;

	while (*at)
		at = &(*at)->next;
	*at = e;
	if (write(c->channel.fd, &one, sizeof one) < 0)
		misuse("write to an event channel: %s", strerror(errno));
}

/* Whoever has read the descriptor already finds nothing, and reads again. */
static void uncount_event(const struct cm_channel *c)
{
	struct pollfd p = {.fd = c->channel.fd, .events = POLLIN};
	uint64_t one;

	if (poll(&p, 1, 0) > 0 && read(p.fd, &one, sizeof one) < 0)
		return;
}

static struct cm_event *make_event(struct cm_id *c, enum rdma_cm_event_type what, int status,
				   const struct message_connect *with)
{
	struct cm_event *e = calloc(1, sizeof *e);
	struct rdma_conn_param *p;

	if (!e)
		misuse("out of memory");
	e->event.id = &c->id;
	e->event.event = what;
	e->event.status = status;
	p = &e->event.param.conn;
	if (!with)
		return e;
	memcpy(e->private_data, with->private_data, sizeof e->private_data);
	p->private_data = with->private_len ? e->private_data : NULL;
	p->private_data_len = (uint8_t)with->private_len;
	p->responder_resources = with->initiator_depth;
	p->initiator_depth = with->responder_resources;
	p->retry_count = with->retry_count;
	p->rnr_retry_count = with->rnr_retry_count;
	p->qp_num = with->number;
	return e;
}

/* Events that a rule delays. */
static struct cm_event *delayed;

static struct cm_event **find_delayed(const struct cm_event *e)
{
	struct cm_event **at = &delayed;

	while (*at && *at != e)
		at = &(*at)->next;
	return at;
}

static void append_delayed(struct engine_timer *t)
{
	struct cm_event *e = (struct cm_event *)((char *)t - offsetof(struct cm_event, late));

	*find_delayed(e) = e->next;
	e->next = NULL;
	append_event(cm_channel_of(event_owner(e)->id.channel), e);
}

static void queue_event(struct cm_event *e, unsigned late_ms)
{
	if (!late_ms) {
		append_event(cm_channel_of(event_owner(e)->id.channel), e);
		return;
	}
	e->next = delayed;
	delayed = e;
	e->late.fire = append_delayed;
	engine_set(&e->late, (uint64_t)late_ms * 1000000);
}

/* As the event that it becomes, with those that are ordered beside it. */
static void queue_ordered(struct cm_event *e, struct cm_id *c, const struct order_event *o)
{
	if (o->first >= 0)
		queue_event(make_event(c, (enum rdma_cm_event_type)o->first, 0, NULL), o->late_ms);
	queue_event(e, o->late_ms);
	if (o->twice)
		queue_event(make_event(c, e->event.event, e->event.status, NULL), o->late_ms);
}

void cm_report(struct cm_id *c, enum rdma_cm_event_type what, int status,
	       const struct message_connect *with)
{
	bool response = what == RDMA_CM_EVENT_CONNECT_RESPONSE;
	struct order_event o = order_event(response ? RDMA_CM_EVENT_ESTABLISHED : what, status);
	struct cm_event *e = make_event(c, (enum rdma_cm_event_type)o.as, o.status, with);

	/* addr_handler(): the address may be resolved again. */
	if (what == RDMA_CM_EVENT_ADDR_RESOLVED && o.as == RDMA_CM_EVENT_ADDR_ERROR)
		c->state = CM_BOUND;
	e->response = response && o.as == RDMA_CM_EVENT_ESTABLISHED;
	queue_ordered(e, c, &o);
}

void cm_report_caller(struct cm_id *listener, struct cm_id *caller)
{
	struct order_event o = order_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct cm_event *e;

	if (o.as == RDMA_CM_EVENT_CONNECT_REQUEST) {
		e = make_event(caller, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &caller->request.connect);
		e->event.listen_id = &listener->id;
		o.twice = false; /* it would be another id's */
	} else {
		e = make_event(listener, (enum rdma_cm_event_type)o.as, o.status, NULL);
		cm_hang_up(caller);
		cm_free(caller);
	}
	queue_ordered(e, listener, &o);
}

/* ---- taking ----------------------------------------------------------------------------- */

/* It is the program's now. */
static void take_caller(struct cm_id *c)
{
	tally_add(TALLY_IDS);
	c->untaken = false;
}

/* librdmacm/cma.c: rdma_get_cm_event() and ucma_process_conn_resp(), whose status is no errno */
static void fail_response(struct cm_event *e)
{
	e->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
	e->event.status = -1;
	if (e->event.id->qp)
		queue_pair_break(queue_pair_of(e->event.id->qp));
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cm_channel *c = cm_channel_of(channel);
	struct cm_event *e;
	uint64_t one;

	FAIL_IF_ORDERED(-1);
	do {
		if (read(channel->fd, &one, sizeof one) < 0)
			return -1;
		engine_lock();
		e = c->first;
		if (e) {
			c->first = e->next;
			event_owner(e)->taken++;
			if (e->event.listen_id)
				take_caller(cm_id_of(e->event.id));
			if (e->response && cm_establish(cm_id_of(e->event.id)))
				fail_response(e);
			/* librdmacm/cma.c: ucma_modify_qp_err() */
			if (e->event.event == RDMA_CM_EVENT_REJECTED && e->event.id->qp)
				queue_pair_break(queue_pair_of(e->event.id->qp));
		}
		engine_unlock();
	} while (!e);
	*event = &e->event;
	return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *e = (struct cm_event *)event;

	engine_lock();
	event_owner(e)->taken--;
	engine_unlock();
	pthread_mutex_lock(&ack_lock);
	pthread_cond_broadcast(&acked);
	pthread_mutex_unlock(&ack_lock);
	free(e);
	FAIL_IF_ORDERED(-1);
	return 0;
}

static void await_acks(struct cm_id *c)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ACK_WAIT_S;
	while (c->taken) {
		/* A real call would wait for ever. */
		if (rc)
			misuse("rdma_destroy_id: %u events were not acknowledged", c->taken);
		pthread_mutex_lock(&ack_lock);
		engine_unlock();
		rc = pthread_cond_timedwait(&acked, &ack_lock, &until);
		pthread_mutex_unlock(&ack_lock);
		engine_lock();
	}
}

static void drop_event(struct cm_event *e)
{
	if (e->event.listen_id) {
		cm_hang_up(cm_id_of(e->event.id));
		cm_free(cm_id_of(e->event.id));
	}
	free(e);
}

void cm_drop_events(struct cm_id *c)
{
	struct cm_channel *channel = cm_channel_of(c->id.channel);
	struct cm_event **at = &channel->first, *e;

	while ((e = *at)) {
		if (event_owner(e) != c) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		uncount_event(channel);
		drop_event(e);
	}
	for (at = &delayed; (e = *at);) {
		if (event_owner(e) != c) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		engine_cancel(&e->late);
		drop_event(e);
	}
	await_acks(c);
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *to)
{
	struct cm_channel *from = cm_channel_of(id->channel);
	struct cm_id *c = cm_id_of(id);
	struct cm_event **at, *e;

	FAIL_IF_ORDERED(-1);
	if (!to) {
		errno = EINVAL;
		return -1;
	}
	engine_lock();
	id->channel = to;
	at = &from->first;
	while ((e = *at)) {
		if (event_owner(e) != c) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = NULL;
		uncount_event(from);
		append_event(cm_channel_of(to), e);
	}
	await_acks(c);
	engine_unlock();
	return 0;
}
