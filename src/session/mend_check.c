/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Checks wires that bring no credit: the questions and answers between the ends (LANE_CHECK,
 * LANE_HELD), and when a lane stops using RDMA. Also lanes as signs of life.
 */

#include <stdio.h>
#include "base/clock.h"
#include "session/session_impl.h"

/* A wire that breaks so often is worse than TCP; in so much time, or four times the timeout. */
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
	/* Without room now: it asks again. */
	mend_ask(ctx, epoch);
}

/* The lane, if it is open by now. */
static struct lane_end *find_open_lane(struct session *s, unsigned lane)
{
	bool open;

	pthread_mutex_lock(&s->lock);
	open = lane < s->lanes;
	pthread_mutex_unlock(&s->lock);
	return open ? &s->ends[lane] : NULL;
}

/* Is what the peer waits for held up by something else than the peer?  -1: it can't ask that. */
static int is_busy(struct lane_end *e, const struct frame *f, uint32_t epoch)
{
	struct session *s = e->s;
	bool over;

	pthread_mutex_lock(&s->lock);
	over = e->down && e->down_epoch >= epoch;
	pthread_mutex_unlock(&s->lock);
	if (over)
		return !atomic_load(&e->waits);
	if (s->side == LANE_SINK)
		return lane_check(e->lane, epoch);
	return fail_as(OUT_PROTOCOL, "%s sent %s for lane %u, epoch %u, which it has not given up",
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
	if (m.busy || e->held == HELD_NOTHING)
		e->held = m.busy ? HELD_BUSY : HELD_IDLE;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ---- doing without RDMA -------------------------------------------------------------------- */

/* "; …", if large packets may be lost for it; else "". */
static void mtus_text(struct lane_end *e, char *to, size_t size)
{
	unsigned here = lane_mtu(e->lane), there = atomic_load(&e->peer_mtu);

	to[0] = '\0';
	if (here && there && here != there)
		snprintf(to, size, "; the MTU is %u here and %u at %s: set both alike", here, there,
			 e->s->o.peer);
}

/* The wire that broke goes down in the list: was it one of too many? */
static bool breaks_often(struct lane_end *e)
{
	uint64_t now = clock_ms(), within = (uint64_t)e->s->terms.timeout_ms * OFTEN_TIMEOUTS;
	uint64_t *oldest = &e->broke_ms[e->breaks++ % OFTEN_BREAKS];
	uint64_t then = e->broke_ms[e->breaks % OFTEN_BREAKS];

	*oldest = now;
	if (within < OFTEN_MS)
		within = OFTEN_MS;
	return e->breaks >= OFTEN_BREAKS && now - then < within;
}

/* Its rail is dead, and a connection over it proves nothing.  Does another one live? */
static bool leave_rail(struct lane_end *e)
{
	struct session *s = e->s;
	struct route *r = &s->route;
	bool others;

	pthread_mutex_lock(&s->lock);
	if (e->rail < r->rail_count)
		r->rails[e->rail].dead = r->rails[e->rail].mute = true;
	others = rail_of_lane(r->rails, r->rail_count, e->index) >= 0;
	pthread_mutex_unlock(&s->lock);
	return others;
}

/* A sink that dials has only seen the connection end; the source has said why. */
static void copy_break_reason(struct lane_end *e, const char *why, char to[static FAIL_TEXT_MAX])
{
	pthread_mutex_lock(&e->s->lock);
	snprintf(to, FAIL_TEXT_MAX, "%s",
		 e->s->side == LANE_SINK && e->down_why[0] ? e->down_why : why);
	pthread_mutex_unlock(&e->s->lock);
}

int mend_judge(struct lane_end *e, const char *broke)
{
	struct session *s = e->s;
	unsigned barren = lane_barren(e->lane);
	uint64_t timeout = (uint64_t)s->terms.timeout_ms;
	char mtus[HOST_MAX + 64], why[FAIL_TEXT_MAX];
	bool often, others;

	if (!e->was_rdma || !route_dials(s, route_stage(s)))
		return 0;
	copy_break_reason(e, broke, why);
	often = breaks_often(e);
	others = barren && leave_rail(e);
	if (barren && !others)
		mtus_text(e, mtus, sizeof mtus);
	else
		mtus[0] = '\0';
	if (s->terms.want == TRANSPORT_RDMA) {
		if (barren < 2 || others || clock_ms() - lane_sign_ms(e->lane) < timeout)
			return 0;
		return fail_as(OUT_PEER_LOST, "lane %u: nothing came through over RDMA for %g s%s",
			       e->index, (double)timeout / 1000, mtus);
	}
	if (barren && !others)
		snprintf(e->no_rdma, sizeof e->no_rdma, "%.400s%s", why, mtus);
	else if (often)
		snprintf(e->no_rdma, sizeof e->no_rdma,
			 "its connection broke %d times in a short time, the last time: %.400s",
			 OFTEN_BREAKS, why);
	else
		return 0;
	e->was_rdma = false;
	return 0;
}

/* ---- life --------------------------------------------------------------------------------- */

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
