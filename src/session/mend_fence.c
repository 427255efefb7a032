/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the two ends report about a lane's epochs, and the fence between them.
 *
 * Recovery is fenced. The end that finds the wire of an epoch broken sends LANE_DOWN. The sink's
 * thread, which is here and so in no file call, sends LANE_STORED. The source waits for that
 * without a time limit, as the sink waits for the source's LANE_DOWN: a thread may be blocked in
 * its file or pipe, and that is no fault. Time counts only while both threads are here.
 *
 * So a waiting end asks the other one with LANE_CHECK whether its thread is busy elsewhere. If that
 * thread waits only for its peer, or the other end does not answer at all, the message will never
 * come, and the session ends.
 */

#include <stdio.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "session/session_impl.h"

enum {
	FENCE_CHECKS = 4, /* in the timeout, all without a busy answer: it is given up */
	FENCE_LEAST_MS = 5000, /* in place of a shorter timeout: a thread must get to run */
};

/* ---- what is said about epochs -------------------------------------------------------------- */

static int send_down(struct lane_end *e, uint32_t epoch, const char *why)
{
	struct msg_lane_down m = {.lane = (uint16_t)e->index, .epoch = epoch};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_lane_down_encode(&w, &m);
	e->said = true;
	e->said_epoch = epoch;
	return control_send(e->s->control, MSG_LANE_DOWN, body, w.used);
}

static int send_lane_stored(struct lane_end *e, uint32_t epoch)
{
	struct msg_lane_stored m = {
		.lane = (uint16_t)e->index,
		.epoch = epoch,
		.stored = lane_stored(e->lane),
		.damaged = lane_damaged(e->lane) != 0,
	};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	msg_lane_stored_encode(&w, &m);
	return control_send(e->s->control, MSG_LANE_STORED, body, w.used);
}

int mend_announce_over(struct lane_end *e, uint32_t epoch, const char *why)
{
	if (send_down(e, epoch, why) < 0)
		return -1;
	return e->s->side == LANE_SINK ? send_lane_stored(e, epoch) : 0;
}

int mend_answer_down(struct lane_end *e)
{
	uint32_t epoch;
	bool down;

	pthread_mutex_lock(&e->s->lock);
	down = e->down;
	epoch = e->down_epoch;
	pthread_mutex_unlock(&e->s->lock);
	if (!down || (e->said && e->said_epoch >= epoch))
		return 0;
	return mend_announce_over(e, epoch, "it has no connection");
}

/* ---- what the peer says: the control thread -------------------------------------------------- */

int mend_check_lane(struct session *s, const struct frame *f, unsigned lane, uint32_t epoch)
{
	if (lane < s->terms.lanes && epoch < UINT32_MAX)
		return 0;
	return fail_as(OUT_PROTOCOL, "%s sent %s for lane %u, epoch %u, which there is not",
		       s->o.peer, message_name(f->type), lane, epoch);
}

/* With the lock held: the wire of that epoch is no good, and the lane's thread looks again. */
static void break_wire(struct session *s, unsigned lane, uint32_t epoch, const char *why)
{
	if (lane >= s->lanes)
		return;
	lane_break(s->ends[lane].lane, epoch, why);
	raise_event(s->ends[lane].nudge);
}

int mend_on_down(struct session *s, const struct frame *f)
{
	struct msg_lane_down m;
	struct lane_end *e;

	if (msg_lane_down_decode(f, &m) < 0 || mend_check_lane(s, f, m.lane, m.epoch) < 0)
		return -1;
	e = &s->ends[m.lane];
	pthread_mutex_lock(&s->lock);
	if (!e->down || m.epoch > e->down_epoch) {
		e->down = true;
		e->down_epoch = m.epoch;
		snprintf(e->down_why, sizeof e->down_why, "%s", m.why);
		break_wire(s, m.lane, m.epoch, m.why);
	}
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int mend_on_stored(struct session *s, const struct frame *f)
{
	struct msg_lane_stored m;
	struct lane_end *e;

	if (msg_lane_stored_decode(f, &m) < 0 || mend_check_lane(s, f, m.lane, m.epoch) < 0)
		return -1;
	e = &s->ends[m.lane];
	pthread_mutex_lock(&s->lock);
	if (!e->fenced || m.epoch > e->fenced_epoch) {
		e->fenced = true;
		e->fenced_epoch = m.epoch;
		e->stored = m.stored;
		break_wire(s, m.lane, m.epoch, "");
	}
	pthread_mutex_unlock(&s->lock);
	if (m.damaged)
		log_info("lane %u: block %llu came damaged to %s and is sent again", m.lane,
			 (unsigned long long)m.stored, s->o.peer);
	return 0;
}

/* ---- waiting for it -------------------------------------------------------------------------- */

/* What a waiting end knows of the other one's thread. */
struct fence_watch {
	uint64_t next_ms; /* when to look again (clock_ms) */
	bool asked; /* and no answer was seen */
	uint64_t pings; /* sent before the question, or more */
	unsigned idle; /* questions in a row to which it was not busy */
};

static int fence_limit(const struct session *s)
{
	return s->terms.timeout_ms > FENCE_LEAST_MS ? s->terms.timeout_ms : FENCE_LEAST_MS;
}

static void ask_peer(struct lane_end *e, uint32_t epoch, struct fence_watch *d)
{
	uint64_t answered;

	d->asked = mend_ask(e, epoch) == 0;
	d->pings = control_pings(e->s->control, &answered);
}

/*
 * -1 when the other end's thread won't say what is waited for.  A PONG of a PING that was sent
 * after the question shows that it is not answered: a channel that is merely slow counts for
 * nothing.
 */
static int check_peer_answer(struct lane_end *e, uint32_t epoch, struct fence_watch *d)
{
	struct session *s = e->s;
	uint64_t answered;
	enum held_seen held;

	control_pings(s->control, &answered);
	d->next_ms = clock_ms() + (uint64_t)fence_limit(s) / FENCE_CHECKS;
	pthread_mutex_lock(&s->lock);
	held = e->held;
	e->held = HELD_NOTHING;
	pthread_mutex_unlock(&s->lock);
	if (held == HELD_NOTHING && d->asked && answered <= d->pings)
		return 0;
	if (held == HELD_BUSY)
		d->idle = 0;
	else if (d->asked && ++d->idle == FENCE_CHECKS)
		return fail_as(
			OUT_TIMEOUT,
			"lane %u: its connection broke, and for %g s %s has neither given it "
			"up nor been busy",
			e->index, fence_limit(s) / 1000.0, s->o.peer);
	ask_peer(e, epoch, d);
	return 0;
}

static bool is_fenced(struct lane_end *e, uint32_t epoch)
{
	bool done;

	pthread_mutex_lock(&e->s->lock);
	done = e->s->side == LANE_SOURCE ? e->fenced && e->fenced_epoch >= epoch
					 : e->down && e->down_epoch >= epoch;
	pthread_mutex_unlock(&e->s->lock);
	return done;
}

int mend_fence(struct lane_end *e, uint32_t epoch, const char *why)
{
	struct fence_watch d = {.next_ms = clock_ms() + (uint64_t)fence_limit(e->s) / FENCE_CHECKS};

	if (mend_announce_over(e, epoch, why) < 0)
		return -1;
	while (!is_fenced(e, epoch)) {
		int rc;

		atomic_store(&e->waits, true);
		rc = lane_end_wait(e, d.next_ms);
		atomic_store(&e->waits, false);
		if (rc < 0 && (lane_aborted(e->lane) || failed()->code != OUT_TIMEOUT))
			return -1;
		if (rc == 0)
			continue;
		fail_clear();
		if (!is_fenced(e, epoch) && check_peer_answer(e, epoch, &d) < 0)
			return -1;
	}
	return 0;
}
