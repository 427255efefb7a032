/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The order in which the pieces of an ordered file are stored, and gaps in it.
 *
 * Lanes overtake each other, so a piece may arrive before pieces that precede it.  Then its lane
 * waits.  The missing bytes arrive in the end, however long that takes, as long as something can
 * bring them.  A lane that waits cannot, and nothing can once everything that FILE_END counts has
 * arrived.  Then there is a gap, and the peer is at fault.
 *
 * A source that leaves no such gap but sends nothing more would block this end for as long as it
 * answers heartbeats.  With a stream it can have no reason to: it reads a stream in order, and has
 * every byte before a piece in memory when it sends that piece.  So for a stream there is a limit.
 * It is far longer than mending a lane takes, and counts only time in which nothing at all arrives
 * and this process runs.
 */

#include "base/clock.h"
#include "base/fail.h"
#include "copy/sink/sink_impl.h"

enum {
	GAP_TIMEOUTS = 4, /* session timeouts without a byte before the peer is at fault */
	SILENCE_CHECKS = 8, /* per session timeout */
};

/* How long nothing has arrived, while a lane waits for its turn. */
struct silence {
	uint64_t activity, silent_ms, checked_ms;
};

/* Does this lane wait for the turn of its piece, while no lane stores?  Lock held. */
static bool is_stuck(const struct sink_lane *l)
{
	const struct sink_file *f = l->ordered_file;

	return f && f->state == SINK_OPEN && !f->storing && l->ordered_pos > f->turn;
}

/* Have all bytes of f arrived, and is none of them due?  Lock held. */
static bool has_gap(const struct sink *s, const struct sink_file *f)
{
	if (!f->ended || f->storing || f->data != f->end.data || f->holes != f->end.holes)
		return false;
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++) {
		if (s->lanes[i].ordered_file == f && s->lanes[i].ordered_pos <= f->turn)
			return false;
	}
	return true;
}

/* Is no lane left that could bring what is due?  Lock held. */
static bool is_every_lane_stuck(const struct sink *s)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		if (!is_stuck(&s->lanes[i]))
			return false;
	}
	return true;
}

static int fail_gap(const struct sink_file *f, const struct piece *p)
{
	return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s at %llu but not those at %llu",
		       sink_shown(f), (unsigned long long)p->pos, (unsigned long long)f->turn);
}

/* A number that changes when something arrives, and while a lane is at work.  The threads of some
 * lanes may not have been started yet.  Lock held. */
static uint64_t count_activity(const struct sink *s)
{
	unsigned stuck = 0;
	uint64_t activity = 0;

	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		activity += lane_activity(session_lane(s->session, i));
		stuck += is_stuck(&s->lanes[i]);
	}
	return s->busy_lanes > stuck ? clock_ns() : activity;
}

/* Counts the time in which nothing arrived.  If a check is late, this process was paused, so at
 * most two intervals count.  Lock held. */
static int check_silence(struct sink_lane *l, struct silence *q, const struct sink_file *f)
{
	uint64_t now = clock_ms(), passed = now - q->checked_ms;
	uint64_t activity = count_activity(l->sink);
	uint64_t timeout = (uint64_t)lane_timeout_ms(l->lane);
	uint64_t interval = timeout / SILENCE_CHECKS + 1;

	q->checked_ms = now;
	q->silent_ms = activity == q->activity
			       ? q->silent_ms + (passed < 2 * interval ? passed : 2 * interval)
			       : 0;
	q->activity = activity;
	if (!(f->r.flags & FILE_STREAM) || q->silent_ms < GAP_TIMEOUTS * timeout)
		return 0;
	return fail_as(
		OUT_TIMEOUT,
		"the peer sent nothing for %llu s, but bytes of %s at %llu are still missing",
		(unsigned long long)(q->silent_ms / 1000), sink_shown(f),
		(unsigned long long)f->turn);
}

/* While no lane stores, the missing bytes are still in flight, so the target is not what is slow.
 */
static void await_turn_change(struct sink_lane *l, struct sink_file *f)
{
	uint64_t start = clock_ns(), now;
	bool was_storing = f->storing;

	sink_wait(l, f, (uint64_t)lane_timeout_ms(l->lane) / SILENCE_CHECKS + 1);
	now = clock_ns();
	if (!was_storing)
		l->use.ns_idle += (f->storing_since_ns > start ? f->storing_since_ns : now) - start;
}

static bool must_await_turn(const struct sink_lane *l, const struct sink_file *f,
			    const struct piece *p)
{
	return f->state == SINK_OPEN && f->ordered && (f->storing || p->pos > f->turn) &&
	       !atomic_load(&l->sink->copy->failed);
}

static int await_order(struct sink_lane *l, struct sink_file *f, const struct piece *p)
{
	struct silence q = {.checked_ms = clock_ms()};
	int ret = 0;

	while (ret == 0 && must_await_turn(l, f, p)) {
		l->ordered_file = f;
		l->ordered_pos = p->pos;
		if (has_gap(l->sink, f) || is_every_lane_stuck(l->sink))
			ret = fail_gap(f, p);
		else
			await_turn_change(l, f);
		if (ret == 0 && must_await_turn(l, f, p))
			ret = check_silence(l, &q, f);
	}
	l->ordered_file = NULL;
	return ret;
}

/* If two pieces begin at one position, only the first one gets the turn. */
int sink_await_turn(struct sink_lane *l, struct sink_file *f, const struct piece *p)
{
	if (must_await_turn(l, f, p) && await_order(l, f, p))
		return -1;
	if (atomic_load(&l->sink->copy->failed))
		return -1;
	if (f->state == SINK_OPEN && f->ordered && p->pos < f->turn)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s twice", sink_shown(f));
	f->storing = f->ordered;
	f->storing_since_ns = f->storing ? clock_ns() : 0;
	return 0;
}
