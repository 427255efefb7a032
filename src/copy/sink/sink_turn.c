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
#include "copy/sink/sink.h"

enum {
	GAP_TIMEOUTS = 4, /* of the session, without a byte */
	SILENCE_CHECKS = 8, /* in one of these */
};

/* What came and how long nothing did, while a lane waits for its turn. */
struct silence {
	uint64_t received, silent_ms, checked_ms;
};

/* Lock held: does this lane hold a piece that nobody lets in now, though nobody is storing? */
static bool is_stuck(const struct sink_lane *l)
{
	const struct sink_file *f = l->ordered_file;

	return f && f->state == SINK_OPEN && !f->storing && l->ordered_pos > f->turn;
}

/* Lock held: all that there is of f came, and none of it is what is due. */
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

/* Lock held: nobody is left to bring what is due anywhere. */
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

/* Lock held: how often something came.  A lane that is at work counts as if.  The threads of some
 * lanes may not have been started yet. */
static uint64_t count_received(const struct sink *s)
{
	unsigned stuck = 0;
	uint64_t heard = 0;

	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		heard += lane_activity(session_lane(s->session, i));
		stuck += is_stuck(&s->lanes[i]);
	}
	return s->busy_lanes > stuck ? clock_ns() : heard;
}

/* Lock held: count the time in which nothing came; a look that is late was a pause of ours. */
static int check_silence(struct sink_lane *l, struct silence *q, const struct sink_file *f)
{
	uint64_t now = clock_ms(), passed = now - q->checked_ms, heard = count_received(l->sink);
	uint64_t timeout = (uint64_t)lane_timeout_ms(l->lane), look = timeout / SILENCE_CHECKS + 1;

	q->checked_ms = now;
	q->silent_ms =
		heard == q->received ? q->silent_ms + (passed < 2 * look ? passed : 2 * look) : 0;
	q->received = heard;
	if (!(f->r.flags & FILE_STREAM) || q->silent_ms < GAP_TIMEOUTS * timeout)
		return 0;
	return fail_as(
		OUT_TIMEOUT,
		"the peer sent nothing for %llu s, but bytes of %s at %llu are still missing",
		(unsigned long long)(q->silent_ms / 1000), sink_shown(f),
		(unsigned long long)f->turn);
}

/* As long as nobody stores what comes before, it is on its way: the target is not slow then. */
static void await_turn_change(struct sink_lane *l, struct sink_file *f)
{
	uint64_t start = clock_ns(), now;
	bool taken = f->storing;

	sink_wait(l, f, (uint64_t)lane_timeout_ms(l->lane) / SILENCE_CHECKS + 1);
	now = clock_ns();
	if (!taken)
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

/* Of two at one position only the first has its turn. */
int sink_await_turn(struct sink_lane *l, struct sink_file *f, const struct piece *p)
{
	if (await_order(l, f, p))
		return -1;
	if (atomic_load(&l->sink->copy->failed))
		return -1;
	if (f->state == SINK_OPEN && f->ordered && p->pos < f->turn)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s twice", sink_shown(f));
	f->storing = f->ordered;
	f->storing_since_ns = f->storing ? clock_ns() : 0;
	return 0;
}
