/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The fence: LANE_DOWN and LANE_STORED end an epoch of a lane at both ends.
 *
 * The end that finds the wire of an epoch broken sends LANE_DOWN. The sink's lane thread sends
 * LANE_STORED from this file, so it is in no file call at that time. The source waits for
 * LANE_STORED without a deadline, and the sink waits for the source's LANE_DOWN in the same way: a
 * thread may be blocked in its file or pipe for any length of time. Time counts only while both
 * threads wait in this file.
 *
 * So the waiting end asks with LANE_CHECK whether the other end's thread is busy elsewhere. If that
 * thread waits only for its peer, or if the other end does not answer at all, the awaited message
 * will never arrive, and the session ends.
 */

#include <stdio.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "session/session_impl.h"

enum {
	/* The wait fails after this many questions within the timeout, none answered `busy'. */
	FENCE_CHECKS = 4,
	FENCE_LEAST_MS = 5000, /* least timeout: the other end's thread must get to run */
};

/* ---- announcing the end of an epoch ------------------------------------------------------ */

static int send_down(struct lane_end *e, uint32_t epoch, const char *why)
{
	struct msg_lane_down m = {.lane = (uint16_t)e->index, .epoch = epoch};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_lane_down_encode(&w, &m);
	e->down_sent = true;
	e->down_sent_epoch = epoch;
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
	if (!down || (e->down_sent && e->down_sent_epoch >= epoch))
		return 0;
	return mend_announce_over(e, epoch, "the other end has no connection for this lane");
}

/* ---- frames from the peer: the control thread -------------------------------------------- */

int mend_check_lane(struct session *s, const struct frame *f, unsigned lane, uint32_t epoch)
{
	if (lane < s->terms.lanes && epoch < UINT32_MAX)
		return 0;
	return fail_as(OUT_PROTOCOL, "%s sent %s for an unknown lane or epoch: lane %u, epoch %u",
		       s->o.peer, message_name(f->type), lane, epoch);
}

/* Breaks the wire of that epoch and wakes the lane's thread. Call with the lock held. */
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
		log_info("lane %u: block %llu arrived damaged at %s and is sent again", m.lane,
			 (unsigned long long)m.stored, s->o.peer);
	return 0;
}

/* ---- waiting for the fence --------------------------------------------------------------- */

/* State of the questions that a waiting end asks about the other end's thread. */
struct fence_watch {
	uint64_t next_ms; /* when to check again (clock_ms) */
	bool asked; /* LANE_CHECK was sent */
	uint64_t pings; /* number of PINGs right after the question */
	unsigned idle; /* questions in a row without the answer `busy' */
};

static int fence_limit(const struct session *s)
{
	return s->terms.timeout_ms > FENCE_LEAST_MS ? s->terms.timeout_ms : FENCE_LEAST_MS;
}

static void ask_peer(struct lane_end *e, uint32_t epoch, struct fence_watch *watch)
{
	uint64_t answered;

	watch->asked = mend_ask(e, epoch) == 0;
	watch->pings = control_pings(e->s->control, &answered);
}

/*
 * Returns -1 if the other end's thread will never send the awaited message. A question counts as
 * unanswered only once the PONG for a later PING has arrived, so a slow channel counts for nothing.
 */
static int check_peer_answer(struct lane_end *e, uint32_t epoch, struct fence_watch *watch)
{
	struct session *s = e->s;
	uint64_t answered;
	enum held_report held;

	control_pings(s->control, &answered);
	watch->next_ms = clock_ms() + (uint64_t)fence_limit(s) / FENCE_CHECKS;
	pthread_mutex_lock(&s->lock);
	held = e->held;
	e->held = HELD_NONE;
	pthread_mutex_unlock(&s->lock);
	if (held == HELD_NONE && watch->asked && answered <= watch->pings)
		return 0;
	if (held == HELD_BUSY)
		watch->idle = 0;
	else if (watch->asked && ++watch->idle == FENCE_CHECKS)
		return fail_as(OUT_TIMEOUT,
			       "lane %u: the connection broke, and for %g s %s has neither "
			       "acknowledged that nor been busy",
			       e->index, fence_limit(s) / 1000.0, s->o.peer);
	ask_peer(e, epoch, watch);
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
	struct fence_watch watch = {.next_ms = clock_ms() +
					       (uint64_t)fence_limit(e->s) / FENCE_CHECKS};

	if (mend_announce_over(e, epoch, why) < 0)
		return -1;
	while (!is_fenced(e, epoch)) {
		int rc;

		atomic_store(&e->awaits_peer, true);
		rc = lane_end_wait(e, watch.next_ms);
		atomic_store(&e->awaits_peer, false);
		if (rc < 0 && (lane_aborted(e->lane) || failed()->code != OUT_TIMEOUT))
			return -1;
		if (rc == 0)
			continue;
		fail_clear();
		if (!is_fenced(e, epoch) && check_peer_answer(e, epoch, &watch) < 0)
			return -1;
	}
	return 0;
}
