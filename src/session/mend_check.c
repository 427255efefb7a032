/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks wires that bring no credit: the questions and answers between the ends (LANE_CHECK,
 * LANE_HELD), and the decision when a lane stops using RDMA. Also when the peer was last heard on
 * any lane.
 */

#include <limits.h>
#include <stdio.h>
#include "base/clock.h"
#include "session/session_impl.h"

/* RDMA wires that break OFTEN_BREAKS times within a minute, or within four timeouts if that is
 * longer, are worse than TCP. */
enum { OFTEN_MS = 60000, OFTEN_TIMEOUTS = 4 };

/* ---- asking ------------------------------------------------------------------------------ */

int mend_ask(struct lane_end *e, uint32_t epoch)
{
	struct msg_lane_check m = {
		.lane = (uint16_t)e->index,
		.epoch = epoch,
		.mtu = lane_mtu(e->lane),
	};
	uint8_t body[16];
	struct writer w = writer_of(body, sizeof body);

	msg_lane_check_encode(&w, &m);
	if (control_post(e->s->control, MSG_LANE_CHECK, body, w.used) == 0)
		return 0;
	fail_clear();
	return -1;
}

void session_ask(void *ctx, struct lane *l, uint32_t epoch)
{
	(void)l;
	/* If the outbox has no room, the lane asks again later. */
	mend_ask(ctx, epoch);
}

/* Returns the lane, or NULL if it is not open yet. */
static struct lane_end *find_open_lane(struct session *s, unsigned lane)
{
	bool open;

	pthread_mutex_lock(&s->lock);
	open = lane < s->lanes;
	pthread_mutex_unlock(&s->lock);
	return open ? &s->ends[lane] : NULL;
}

/* Whether the lane's thread is busy with anything but waiting for the peer. -1: the peer may not
 * ask. */
static int is_busy(struct lane_end *e, const struct frame *f, uint32_t epoch)
{
	struct session *s = e->s;
	bool over;

	pthread_mutex_lock(&s->lock);
	over = e->down && e->down_epoch >= epoch;
	pthread_mutex_unlock(&s->lock);
	if (over)
		return !atomic_load(&e->awaits_peer);
	if (s->side == LANE_SINK)
		return lane_check(e->lane, epoch);
	return fail_as(OUT_PROTOCOL, "%s sent %s for lane %u, epoch %u, without LANE_DOWN",
		       s->o.peer, message_name(f->type), e->index, epoch);
}

int mend_on_check(struct session *s, const struct frame *f)
{
	struct msg_lane_held held = {0};
	struct msg_lane_check m;
	struct lane_end *e;
	uint8_t body[16];
	struct writer w = writer_of(body, sizeof body);
	int busy;

	if (msg_lane_check_decode(f, &m) < 0 || mend_check_lane(s, f, m.lane, m.epoch) < 0)
		return -1;
	e = find_open_lane(s, m.lane);
	if (!e)
		return 0;
	busy = is_busy(e, f, m.epoch);
	if (busy < 0)
		return -1;
	atomic_store(&e->peer_mtu, m.mtu);
	held.lane = m.lane;
	held.epoch = m.epoch;
	held.busy = busy;
	held.mtu = lane_mtu(e->lane);
	msg_lane_held_encode(&w, &held);
	if (control_post(s->control, MSG_LANE_HELD, body, w.used) < 0)
		fail_clear();
	return 0;
}

int mend_on_held(struct session *s, const struct frame *f)
{
	struct msg_lane_held m;
	struct lane_end *e;

	if (msg_lane_held_decode(f, &m) < 0 || mend_check_lane(s, f, m.lane, m.epoch) < 0)
		return -1;
	e = find_open_lane(s, m.lane);
	if (!e)
		return 0;
	atomic_store(&e->peer_mtu, m.mtu);
	lane_held(e->lane, m.epoch, m.busy);
	pthread_mutex_lock(&s->lock);
	if (m.busy || e->held == HELD_NONE)
		e->held = m.busy ? HELD_BUSY : HELD_IDLE;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ---- giving RDMA up ----------------------------------------------------------------------- */

/* "; the MTU is …" if the MTUs differ, because then large packets may be lost; else "". */
static void format_mtu_hint(struct lane_end *e, char *to, size_t size)
{
	unsigned here = lane_mtu(e->lane), there = atomic_load(&e->peer_mtu);

	to[0] = '\0';
	if (here && there && here != there)
		snprintf(to, size, "; the MTU is %u here and %u on %s: set the same MTU on both",
			 here, there, e->s->o.peer);
}

int mend_often_ms(const struct session *s)
{
	int64_t ms = (int64_t)s->terms.timeout_ms * OFTEN_TIMEOUTS;

	return ms < OFTEN_MS ? OFTEN_MS : ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Records that an RDMA wire broke. Returns true if too many broke in a short time. */
static bool record_rdma_break(struct lane_end *e)
{
	uint64_t now = clock_ms(), within = (uint64_t)mend_often_ms(e->s);
	uint64_t oldest;

	e->break_ms[e->rdma_breaks++ % OFTEN_BREAKS] = now;
	oldest = e->break_ms[e->rdma_breaks % OFTEN_BREAKS];
	return e->rdma_breaks >= OFTEN_BREAKS && now - oldest < within;
}

/* Marks the lane's rail as dead and mute. Returns true if another rail is not dead. */
static bool leave_rail(struct lane_end *e)
{
	struct session *s = e->s;
	struct route *r = &s->route;
	bool other_rail;

	pthread_mutex_lock(&s->lock);
	if (e->rail < r->rail_count)
		r->rails[e->rail].dead = r->rails[e->rail].mute = true;
	other_rail = rail_of_lane(r->rails, r->rail_count, e->index) >= 0;
	pthread_mutex_unlock(&s->lock);
	return other_rail;
}

int mend_decide_rdma(struct lane_end *e, const char *why)
{
	struct session *s = e->s;
	unsigned barren = lane_barren(e->lane);
	uint64_t timeout = (uint64_t)s->terms.timeout_ms;
	char mtus[HOST_MAX + 96];
	bool too_often, other_rail;

	if (!e->was_rdma || !route_dials(s, route_stage(s)))
		return 0;
	too_often = record_rdma_break(e);
	other_rail = barren && leave_rail(e);
	if (barren && !other_rail)
		format_mtu_hint(e, mtus, sizeof mtus);
	else
		mtus[0] = '\0';
	if (s->terms.want == TRANSPORT_RDMA) {
		if (barren < 2 || other_rail || clock_ms() - lane_sign_ms(e->lane) < timeout)
			return 0;
		return fail_as(OUT_PEER_LOST, "lane %u: no block got through over RDMA for %g s%s",
			       e->index, (double)timeout / 1000, mtus);
	}
	if (barren && !other_rail)
		snprintf(e->no_rdma, sizeof e->no_rdma, "%.400s%s", why, mtus);
	else if (too_often)
		snprintf(
			e->no_rdma, sizeof e->no_rdma,
			"the RDMA connection broke %d times in a short time, most recently: %.400s",
			OFTEN_BREAKS, why);
	else
		return 0;
	e->was_rdma = false;
	return 0;
}

/* ---- signs of life ------------------------------------------------------------------------ */

uint64_t session_heard_ms(void *ctx)
{
	struct session *s = ctx;
	uint64_t last = 0;

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < s->lanes; i++) {
		uint64_t at = lane_heard_ms(s->ends[i].lane);

		if (at > last)
			last = at;
	}
	pthread_mutex_unlock(&s->lock);
	return last;
}
