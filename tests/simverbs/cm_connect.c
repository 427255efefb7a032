/* SPDX-License-Identifier: Apache-2.0 */

/* How ids connect. */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cm.h"
#include "misuse.h"
#include "order.h"
#include "record.h"

static const uint64_t busy_ns = 5000000;

/* The status of a call that the listener's program rejects. */
static int reject_status(const struct cm_id *c)
{
	return cm_is_iwarp(c) ? -(int)cm_adapter(c)->p.reject_errno : REJ_BY_CONSUMER;
}

/* The status of a call to a port where nobody listens. */
static int no_service_status(const struct cm_id *c)
{
	return cm_is_iwarp(c) ? -(int)cm_adapter(c)->p.unheard_errno : REJ_NO_SERVICE;
}

/* ---- private data ----------------------------------------------------------------------- */

/* most: the most that may be passed, which is also what arrives if this connection manager pads. */
static int set_private(struct message_connect *to, const struct personality *p, const void *data,
		       size_t len, uint32_t most)
{
	if (len > most || len > sizeof to->private_data) {
		errno = EINVAL;
		return -1;
	}
	memset(to->private_data, 0, sizeof to->private_data);
	if (len)
		memcpy(to->private_data, data, len);
	to->private_len = p->padded ? most : (uint32_t)len;
	return 0;
}

static int set_param(struct cm_id *c, struct message *m, const struct rdma_conn_param *p,
		     uint32_t most)
{
	struct rdma_conn_param none = {0};

	if (!p)
		p = &none;
	m->connect.number = c->id.qp->qp_num;
	m->connect.process = (uint32_t)getpid();
	m->connect.responder_resources = p->responder_resources;
	m->connect.initiator_depth = p->initiator_depth;
	m->connect.retry_count = p->retry_count;
	m->connect.rnr_retry_count = p->rnr_retry_count;
	return set_private(&m->connect, &cm_adapter(c)->p, p->private_data, p->private_data_len,
			   most);
}

/* ---- refusals and ends
 * ----------------------------------------------------------------------------- */

static void report_rejection(struct cm_id *c, int status, const struct message_connect *with)
{
	c->state = CM_ENDED;
	engine_cancel(&c->timer);
	cm_report(c, RDMA_CM_EVENT_REJECTED, status, with);
}

/* The peer's process has gone, or has destroyed its id. */
static void end_link(struct link *l)
{
	struct cm_id *c = l->owner;

	switch (c->state) {
	case CM_CALLING:
		/* Its kernel rejects what it has not answered. */
		report_rejection(c, cm_is_iwarp(c) ? -ECONNRESET : REJ_BY_CONSUMER, NULL);
		return;
	case CM_CALLED:
		c->state = CM_ENDED;
		return;
	case CM_ACCEPTED:
		c->state = CM_ENDED;
		if (cm_is_iwarp(c))
			cm_report_end(c, 0);
		else
			cm_report(c, RDMA_CM_EVENT_REJECTED, REJ_TIMEOUT, NULL);
		return;
	case CM_CONNECTED:
		cm_report_end(c, 0);
		return;
	case CM_ENDING:
		cm_hear_end(c, MESSAGE_DREP);
		return;
	default:
		return;
	}
}

void cm_hang_up(struct cm_id *c)
{
	struct message m = {.magic = MESSAGE_MAGIC, .kind = MESSAGE_REJ};

	engine_cancel(&c->timer);
	if (!c->link)
		return;
	if (c->state == CM_CALLED) {
		m.connect.status = reject_status(c);
		link_send(c->link, &m);
	}
	link_close(c->link);
	c->link = NULL;
	c->state = CM_ENDED;
}

/*
 * Of RoCE and InfiniBand it is in the path, which the request carries to the other end. An iWARP
 * end has its own, and a caller's end that of the listener (cma_iw_listen()). A driver may ignore
 * it; that is not simulated.
 */
static void set_tos(struct cm_id *c)
{
	struct remote *r = &c->link->remote;

	r->tos = cm_is_iwarp(c) ? c->tos : c->request.connect.tos;
	record_connection(&c->id, r->tos, &c->request.connect);
}

/* As the request has it, for both ends; but for receivers that are not ready, as the other end has
 * it. An end's own ACK timeout counts for its sends only (rdma_set_ack_timeout()). */
static void set_retries(struct cm_id *c, uint8_t rnr_retry_count)
{
	struct remote *r = &c->link->remote;

	r->retry_count = c->request.connect.retry_count;
	r->ack_timeout = c->ack_timeout ? c->ack_timeout : c->request.connect.ack_timeout;
	r->rnr_retry_count = rnr_retry_count;
}

/* ---- calling ---------------------------------------------------------------------------- */

int cm_establish(struct cm_id *c)
{
	if (c->state != CM_CALLING || !c->link)
		return -1;
	c->state = CM_CONNECTED;
	if (c->id.qp)
		queue_pair_connect(queue_pair_of(c->id.qp), &c->link->remote, true);
	cm_send_plain(c, MESSAGE_RTU);
	return 0;
}

static void take_reply(struct cm_id *c, const struct message *m)
{
	engine_cancel(&c->timer);
	set_retries(c, m->connect.rnr_retry_count);
	set_tos(c);
	if (!cm_is_iwarp(c)) {
		cm_report(c, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &m->connect);
		return;
	}
	cm_establish(c);
	cm_report(c, RDMA_CM_EVENT_ESTABLISHED, 0, &m->connect);
}

static void hear_message(struct link *l, const struct message *m)
{
	struct cm_id *c = l->owner;

	if (m->kind == MESSAGE_REP && c->state == CM_CALLING)
		take_reply(c, m);
	else if (m->kind == MESSAGE_REP && c->state == CM_CONNECTED)
		cm_send_plain(c, MESSAGE_RTU); /* the first was lost */
	else if (m->kind == MESSAGE_REQ && c->state == CM_ACCEPTED && c->id.qp)
		link_send_queue(l, &c->reply, queue_pair_of(c->id.qp));
	else if (m->kind == MESSAGE_REJ && c->state == CM_CALLING)
		report_rejection(c, m->connect.status, &m->connect);
	else if (m->kind == MESSAGE_RTU && c->state == CM_ACCEPTED) {
		c->state = CM_CONNECTED;
		engine_cancel(&c->timer);
		cm_report(c, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	} else if (m->kind == MESSAGE_DREQ || m->kind == MESSAGE_DREP) {
		cm_hear_end(c, m->kind);
	}
}

static int dial_listener(struct cm_id *c)
{
	const struct sockaddr *to = &c->id.route.addr.dst_addr;
	char name[128];

	cm_name(name, sizeof name, c, to, false);
	if (link_dial(name, cm_adapter(c), c->id.port_num, &c->link) == 0)
		return 0;
	if (errno != ECONNREFUSED)
		return -1;
	cm_name(name, sizeof name, c, to, true);
	return link_dial(name, cm_adapter(c), c->id.port_num, &c->link);
}

/* Sends the request once the listener has room. */
static void send_request(struct cm_id *c)
{
	if (dial_listener(c)) {
		if (errno == EAGAIN)
			engine_set(&c->timer, busy_ns);
		else
			report_rejection(c, no_service_status(c), NULL);
		return;
	}
	c->link->owner = c;
	c->link->heard = hear_message;
	c->link->ended = end_link;
	c->link->broken = cm_is_iwarp(c) ? cm_break_link : NULL;
	if (link_start(c->link) || link_send_queue(c->link, &c->request, queue_pair_of(c->id.qp))) {
		report_rejection(c, no_service_status(c), NULL);
		return;
	}
	engine_set(&c->timer, (uint64_t)cm_adapter(c)->p.cm_timeout * 1000000);
}

/* Whether the port that is reached has the address. Another takes no request for it. */
static bool is_there(const struct cm_id *c)
{
	const struct host_address *a = c->peer;

	return a->kind == ADDRESS_OWN ||
	       (a->kind == ADDRESS_FAR && strcmp(a->cable, cm_cable(c)) == 0);
}

/* Sends m again, where there is a link, or gives up after the adapter's last try. */
static void repeat_message(struct cm_id *c, struct message *m)
{
	const struct personality *p = &cm_adapter(c)->p;

	if (c->tries++ < p->cm_retries) {
		if (c->link && c->id.qp)
			link_send_queue(c->link, m, queue_pair_of(c->id.qp));
		engine_set(&c->timer, (uint64_t)p->cm_timeout * 1000000);
		return;
	}
	c->state = CM_ENDED;
	cm_report(c, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
}

void cm_call_timeout(struct engine_timer *t)
{
	struct cm_id *c = (struct cm_id *)((char *)t - offsetof(struct cm_id, timer));

	if (c->state != CM_CALLING)
		return;
	if (!c->link && is_there(c)) {
		send_request(c);
		return;
	}
	repeat_message(c, &c->request);
}

/* cma_hdr has addresses without zones. */
static void forget_zone(struct sockaddr_storage *sa)
{
	if (sa->ss_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_scope_id = 0;
}

EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct cm_id *c = cm_id_of(id);
	const struct personality *p = &cm_adapter(c)->p;

	FAIL_IF_ORDERED(-1);
	if (c->state != CM_ROUTE || !id->qp) {
		errno = EINVAL;
		return -1;
	}
	c->request = (struct message){.magic = MESSAGE_MAGIC, .kind = MESSAGE_REQ};
	c->request.connect.from = id->route.addr.src_storage;
	c->request.connect.to = id->route.addr.dst_storage;
	forget_zone(&c->request.connect.from);
	forget_zone(&c->request.connect.to);
	c->request.connect.ack_timeout = c->path_timeout;
	c->request.connect.tos = c->tos;
	if (set_param(c, &c->request, param, p->req_private))
		return -1;
	engine_lock();
	c->state = CM_CALLING;
	c->timer.fire = cm_call_timeout;
	if (is_there(c))
		send_request(c);
	else
		engine_set(&c->timer, (uint64_t)p->cm_timeout * 1000000);
	engine_unlock();
	return 0;
}

/* ---- called ----------------------------------------------------------------------------- */

static void ignore_message(struct link *l, const struct message *m)
{
	(void)l;
	(void)m;
}

/* The first message of a new connection to a listener. */
static void hear_caller(struct link *l, const struct message *m)
{
	struct message no = {.magic = MESSAGE_MAGIC, .kind = MESSAGE_REJ};
	struct cm_id *listener = l->owner, *c;

	if (m->kind != MESSAGE_REQ) {
		link_close(l);
		return;
	}
	if (cm_is_stale(listener, &m->connect)) {
		no.connect.status = REJ_STALE;
		link_send(l, &no);
		/* The caller closes it. If it were closed here, the kernel would drop the message:
		 * regions that the caller announced are still unread. */
		l->heard = ignore_message;
		return;
	}
	c = cm_new(listener->id.channel, listener->id.context, listener->id.ps);
	if (!c) {
		link_close(l);
		return;
	}
	c->id.verbs = listener->id.verbs;
	c->id.port_num = listener->id.port_num;
	c->tos = listener->tos;
	c->id.route.addr.src_storage = m->connect.to;
	c->id.route.addr.dst_storage = m->connect.from;
	c->state = CM_CALLED;
	c->request = *m;
	c->untaken = true;
	c->link = l;
	l->owner = c;
	l->heard = hear_message;
	l->ended = end_link;
	l->broken = cm_is_iwarp(c) ? cm_break_link : NULL;
	cm_report_caller(listener, c);
}

static void end_caller(struct link *l)
{
	link_close(l);
}

void cm_listen_ready(struct engine_watch *w)
{
	struct cm_id *c = (struct cm_id *)((char *)w - offsetof(struct cm_id, bound));
	struct link *l;

	if (link_accept(w->fd, cm_adapter(c), c->id.port_num ? c->id.port_num : 1, &l))
		return;
	l->owner = c;
	l->heard = hear_caller;
	l->ended = end_caller;
	if (link_start(l))
		link_close(l);
}

/* No RTU has come. */
static void repeat_reply(struct engine_timer *t)
{
	struct cm_id *c = (struct cm_id *)((char *)t - offsetof(struct cm_id, timer));

	if (c->state == CM_ACCEPTED && c->id.qp)
		repeat_message(c, &c->reply);
}

EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct cm_id *c = cm_id_of(id);
	struct queue_pair *q = queue_pair_of(id->qp);
	int rc = -1;

	FAIL_IF_ORDERED(-1);
	c->reply = (struct message){.magic = MESSAGE_MAGIC, .kind = MESSAGE_REP};
	if (!q || set_param(c, &c->reply, param, cm_adapter(c)->p.rep_private)) {
		errno = EINVAL;
		return -1;
	}
	engine_lock();
	errno = c->state == CM_ENDED ? ECONNRESET : EINVAL;
	if (c->state != CM_CALLED)
		goto out;
	set_retries(c, c->request.connect.rnr_retry_count);
	set_tos(c);
	q->must_listen = cm_is_iwarp(c);
	queue_pair_connect(q, &c->link->remote, true);
	c->state = CM_ACCEPTED;
	/* A peer that has gone meanwhile is reported by an event. */
	link_send_queue(c->link, &c->reply, q);
	if (cm_is_iwarp(c)) {
		c->state = CM_CONNECTED;
		cm_report(c, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	} else {
		c->timer.fire = repeat_reply;
		engine_set(&c->timer, (uint64_t)cm_adapter(c)->p.cm_timeout * 1000000);
	}
	rc = 0;
out:
	engine_unlock();
	return rc;
}

/* ib_cm_notify(): what arrived shows that the peer has the reply, though no RTU came. */
EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	struct cm_id *c = cm_id_of(id);
	int rc = -1;

	FAIL_IF_ORDERED(-1);
	engine_lock();
	errno = c->state == CM_CONNECTED ? EISCONN : EINVAL;
	if (event == IBV_EVENT_COMM_EST && !cm_is_iwarp(c) && c->state == CM_ACCEPTED) {
		c->state = CM_CONNECTED;
		engine_cancel(&c->timer);
		cm_report(c, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
		rc = 0;
	}
	engine_unlock();
	return rc;
}

EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct message m = {.magic = MESSAGE_MAGIC, .kind = MESSAGE_REJ};
	struct cm_id *c = cm_id_of(id);
	int rc = -1;

	FAIL_IF_ORDERED(-1);
	if (set_private(&m.connect, &cm_adapter(c)->p, data, len, cm_adapter(c)->p.rej_private))
		return -1;
	m.connect.status = reject_status(c);
	engine_lock();
	errno = EINVAL;
	if (c->state == CM_CALLED) {
		link_send(c->link, &m);
		c->state = CM_ENDED;
		rc = 0;
	}
	engine_unlock();
	return rc;
}
