/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How connections end, and what is left of them. As in drivers/infiniband/core/cm.c and cma.c of
 * Linux 6.1:
 *
 * - The end that disconnects repeats its DREQ until a DREP comes, and reports DISCONNECTED then.
 * The other end reports DISCONNECTED when the DREQ comes, and sends the DREP when it disconnects,
 * too.
 * - An end that has sent or received the DREP is in timewait, and reports TIMEWAIT_EXIT after it.
 * - A request from a queue pair that another connection here has is stale: it is rejected, and that
 *   other connection, whose peer must have forgotten it, is ended.
 *
 * IBTA 12.9.8.3.1 also rejects a queue pair whose last connection is in timewait here. Linux does
 * not, other connection managers may: order.h has a rule for it.
 *
 * iWARP has nothing of this: an end is the end of TCP.
 */

#include <errno.h>
#include <stddef.h>
#include "cm.h"
#include "delay.h"
#include "misuse.h"
#include "order.h"

enum { ACK_DELAY = 16, STALE = 16 };

/* Queue pairs of rejected requests. */
static struct stale {
	uint32_t process, number;
	uint64_t until_ns;
} stale[STALE];

static struct cm_id *timer_id(struct engine_timer *t)
{
	return (struct cm_id *)((char *)t - offsetof(struct cm_id, timer));
}

void cm_send_plain(struct cm_id *c, enum message_kind kind)
{
	struct message m = {.magic = MESSAGE_MAGIC, .kind = kind};

	link_send(c->link, &m);
}

void cm_report_end(struct cm_id *c, int status)
{
	if (c->reported_end)
		return;
	c->reported_end = true;
	/* An iWARP adapter's queue pair ends with its connection; on InfiniBand receives stay
	 * posted until rdma_disconnect(). */
	if (cm_is_iwarp(c) && c->id.qp)
		queue_pair_break(queue_pair_of(c->id.qp));
	cm_report(c, RDMA_CM_EVENT_DISCONNECTED, status, NULL);
}

void cm_break_link(struct link *l)
{
	struct cm_id *c = l->owner;

	if (c->state != CM_CONNECTED || c->reported_end)
		return;
	cm_send_plain(c, MESSAGE_DREQ);
	cm_report_end(c, 0);
}

/* ---- timewait --------------------------------------------------------------------------- */

/* cm_ack_timeout() and cm_convert_to_ms() of cm.c. */
static uint64_t measure_timewait_ns(const struct message_connect *request)
{
	int t = request->ack_timeout;

	if (t >= ACK_DELAY)
		t += ACK_DELAY >= t - 1;
	else
		t = ACK_DELAY + (t >= ACK_DELAY - 1);
	return (1000000ull << (t - 8));
}

static void exit_timewait(struct engine_timer *t)
{
	cm_report(timer_id(t), RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
}

static void enter_timewait(struct cm_id *c)
{
	c->state = CM_ENDED;
	c->timer.fire = exit_timewait;
	engine_set(&c->timer, measure_timewait_ns(&c->request.connect));
}

/* ---- disconnecting ---------------------------------------------------------------------- */

static void send_end(struct cm_id *c)
{
	cm_send_plain(c, MESSAGE_DREQ);
	engine_set(&c->timer, (uint64_t)cm_adapter(c)->p.cm_timeout * 1000000);
}

/* No DREP has come. */
static void repeat_end(struct engine_timer *t)
{
	struct cm_id *c = timer_id(t);

	if (c->tries++ < cm_adapter(c)->p.cm_retries) {
		send_end(c);
		return;
	}
	cm_report_end(c, -ETIMEDOUT);
	enter_timewait(c);
}

static void begin_end(struct cm_id *c)
{
	if (cm_is_iwarp(c)) {
		cm_send_plain(c, MESSAGE_DREQ);
		cm_report_end(c, 0);
		c->state = CM_ENDED;
		return;
	}
	if (c->reported_end) {
		cm_send_plain(c, MESSAGE_DREP);
		enter_timewait(c);
		return;
	}
	c->state = CM_ENDING;
	c->tries = 0;
	c->timer.fire = repeat_end;
	send_end(c);
}

void cm_hear_end(struct cm_id *c, enum message_kind kind)
{
	bool ends = kind == MESSAGE_DREP;

	switch (c->state) {
	case CM_ACCEPTED:
	case CM_CONNECTED:
		/* A DREP only if both have sent their DREQ at a time. */
		if (ends && !c->reported_end)
			return;
		engine_cancel(&c->timer);
		c->state = CM_CONNECTED;
		cm_report_end(c, 0);
		break;
	case CM_ENDING:
		engine_cancel(&c->timer);
		c->state = CM_CONNECTED;
		cm_report_end(c, 0);
		break;
	case CM_ENDED:
		if (!ends)
			cm_send_plain(c, MESSAGE_DREP); /* the first was lost */
		return;
	default:
		return;
	}
	if (ends)
		enter_timewait(c);
}

EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	struct cm_id *c = cm_id_of(id);
	int rc = -1;

	FAIL_IF_ORDERED(-1);
	engine_lock();
	errno = EINVAL;
	if (c->state == CM_CONNECTED || c->state == CM_ACCEPTED) {
		if (id->qp)
			queue_pair_break(queue_pair_of(id->qp));
		begin_end(c);
		rc = 0;
	}
	engine_unlock();
	return rc;
}

/* ---- stale connections ------------------------------------------------------------------ */

static bool is_peer(const void *owner, const void *arg)
{
	const struct message_connect *r = arg;
	const struct cm_id *c = owner;

	return c->state == CM_CONNECTED && !c->reported_end &&
	       c->request.connect.process == r->process && c->request.connect.number == r->number;
}

/* The connection's peer would answer a DREQ at once, as it does not know it. */
static void end_zombie(struct cm_id *c)
{
	cm_report_end(c, 0);
	enter_timewait(c);
}

static struct stale *find_stale(const struct message_connect *r)
{
	for (unsigned i = 0; i < STALE; i++)
		if (stale[i].number == r->number && stale[i].process == r->process &&
		    stale[i].until_ns > delay_now())
			return &stale[i];
	return NULL;
}

bool cm_is_stale(const struct cm_id *listener, const struct message_connect *request)
{
	static unsigned next;
	struct cm_id *zombie;

	if (cm_is_iwarp(listener))
		return false;
	zombie = link_find_owner(is_peer, request);
	if (zombie) {
		end_zombie(zombie);
		return true;
	}
	if (order_stale() && !find_stale(request))
		stale[next++ % STALE] = (struct stale){request->process, request->number,
						       delay_now() + measure_timewait_ns(request)};
	return find_stale(request) != NULL;
}
