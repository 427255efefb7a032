/* SPDX-License-Identifier: Apache-2.0 */

/* The thread of a lane: chooses a job, does it, and so on until nothing is left. */

#include "copy/source/source_impl.h"

#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"

enum job {
	JOB_FAILED, /* the session failed */
	JOB_OVER, /* nothing is left to do */
	JOB_WAIT, /* wait for a change */
	JOB_FLUSH, /* send the records first */
	JOB_WALK, /* continue the walk */
	JOB_ENTRIES, /* of l->taken */
	JOB_ASIDES, /* of l->asides */
	JOB_OTHERS, /* of l->others */
	JOB_ANNOUNCE, /* send the FILE of *file */
	JOB_READ, /* claim a piece of *file and send it */
};

/* ---- choosing a job ------------------------------------------------------------------ */

/* All functions of this part but choose_job() are called with the lock held. */

static void set_busy(struct source_lane *l, bool busy, bool taking)
{
	struct source *s = l->source;

	s->busy += (unsigned)busy - (unsigned)l->busy;
	s->taking += (unsigned)taking - (unsigned)l->taking;
	l->busy = busy;
	l->taking = taking;
}

/* With --delete only lane 0 walks, because all KEEPs of a directory must be on one lane. */
static bool may_walk(const struct source_lane *l)
{
	const struct source *s = l->source;

	return !s->walked.walking && !s->walked.over && s->walked.entries < QUEUE_LOW &&
	       (!s->rules->delete || l->index == 0);
}

static bool may_take_entries(const struct source *s)
{
	if (!s->walked.first || s->asides.count + s->taking * TAKE_MAX >= s->asides.max)
		return false;
	/* A source that the user named may be a stream.  That is opened only once, so it cannot be
	 * kept aside. */
	return s->large.count < UNFINISHED_MAX || *s->walked.first->at != WALK_NAMED;
}

static bool may_take_asides(const struct source *s)
{
	return s->asides.ready[0] || (s->asides.ready[1] && s->large.count < UNFINISHED_MAX);
}

static enum job take_entries(struct source_lane *l)
{
	struct source *s = l->source;
	struct source_entry *e;

	l->taken_at = 0;
	l->taken_count = 0;
	while (s->walked.first && l->taken_count < TAKE_MAX) {
		e = &l->taken[l->taken_count];
		e->piece = s->walked.first;
		if (!walk_piece_next(s->walked.first, &e->type, &e->name))
			break;
		l->taken_count++;
		s->walked.entries--;
		if (s->walked.first->count == 0)
			s->walked.first = s->walked.first->next;
		/* Take a named source alone, because reading it may block. */
		if (e->type == WALK_NAMED ||
		    (s->walked.first && *s->walked.first->at == WALK_NAMED))
			break;
	}
	if (!s->walked.first)
		s->walked.end = &s->walked.first;
	return JOB_ENTRIES;
}

static struct aside *pop_ready(struct source *s, bool large)
{
	struct aside *a = s->asides.ready[large];

	s->asides.ready[large] = a->next;
	if (!a->next)
		s->asides.ready_end[large] = &s->asides.ready[large];
	a->next = NULL;
	s->asides.count--;
	if (a->id)
		ids_set(&s->ids, a->id, LIVE_TAKEN);
	return a;
}

static enum job take_asides(struct source_lane *l)
{
	struct source *s = l->source;
	bool large = s->asides.ready[1] && s->large.count < UNFINISHED_MAX;
	struct aside **end = &l->asides;

	for (unsigned i = 0; i < (large ? 1 : TAKE_MAX) && s->asides.ready[large]; i++) {
		*end = pop_ready(s, large);
		end = &(*end)->next;
	}
	return JOB_ASIDES;
}

/* Alternates between the oldest and the shortest large file.  So a huge file does not delay all
 * files that are found after it, and they do not delay the huge one. */
static struct source_file *choose_large(struct source *s)
{
	uint64_t turn = atomic_load(&s->large.claimed) / LARGE_TURN;

	/* A file that failed at the peer comes first, so that its FILE_END is sent at once. */
	for (struct source_file *f = s->large.failed_at_peer > 0 ? s->large.open : NULL; f;
	     f = f->next_open)
		if (atomic_load(&f->stop))
			return f;
	if (turn % 2 == 0)
		return s->large.open;
	if (s->large.shortest && s->large.shortest_turn == turn)
		return s->large.shortest;
	s->large.shortest = s->large.open;
	s->large.shortest_turn = turn;
	for (struct source_file *f = s->large.open->next_open; f; f = f->next_open)
		if (atomic_load(&f->left) < atomic_load(&s->large.shortest->left))
			s->large.shortest = f;
	return s->large.shortest;
}

static enum job pick_open(struct source_lane *l, struct source_file **file)
{
	struct source_file *f = choose_large(l->source);
	uint64_t bit = UINT64_C(1) << l->index;
	bool new = !f->compared && !(f->announced & bit);

	if (!new && !f->compared && l->records.used > 0)
		return JOB_FLUSH;
	if (new)
		f->announced |= bit;
	f->busy++;
	*file = f;
	return new ? JOB_ANNOUNCE : JOB_READ;
}

/* Questions go first, so that answers arrive while files are sent. */
static enum job pick_small(struct source_lane *l)
{
	struct source *s = l->source;

	if (may_take_entries(s) && (s->asks_all || !may_take_asides(s)))
		return take_entries(l);
	return may_take_asides(s) ? take_asides(l) : JOB_WAIT;
}

/* Nothing is left to do, and no other lane does anything that could lead to more work. */
static bool is_drained(const struct source_lane *l)
{
	const struct source *s = l->source;

	return s->walked.over && !s->walked.first && s->asides.count == 0 && !s->large.open &&
	       s->busy == l->busy;
}

/* Other entries wait until all files have their results: hard links need the file that they refer
 * to, and symlinks could lead elsewhere. */
static enum job pick_others(struct source_lane *l)
{
	struct source *s = l->source;
	struct others *left;

	if (is_drained(l) && s->unfinished == 0 && s->asides.sames_unconfirmed == 0) {
		s->phase += s->phase == 0;
		if (s->phase == 1 && s->others.count == 0) {
			s->phase++;
			s->links.round++;
		}
	}
	left = s->phase == 1 ? &s->others : &s->hard_links;
	if (s->phase > 0 && left->count > 0) {
		l->other_count = others_take(left, l->others, TAKE_MAX);
		return JOB_OTHERS;
	}
	if (!is_drained(l) || s->others.count > 0 || s->hard_links.count > 0)
		return JOB_WAIT;
	return JOB_OVER;
}

static enum job pick_job(struct source_lane *l, struct source_file **file)
{
	struct source *s = l->source;
	bool any_open = s->large.open, any_taken = l->taken_at < l->taken_count;
	enum job job = JOB_WAIT;

	if (atomic_load(&s->copy->failed))
		return JOB_FAILED;
	if (may_walk(l)) {
		s->walked.walking = true;
		return JOB_WALK;
	}
	if (!any_open || l->large_due == 0)
		job = any_taken ? JOB_ENTRIES : pick_small(l);
	if (job == JOB_WAIT && any_open)
		job = pick_open(l, file);
	if (job == JOB_WAIT && any_taken)
		job = JOB_ENTRIES;
	if (job == JOB_WAIT)
		job = pick_others(l);
	return job == JOB_WAIT && l->records.used > 0 ? JOB_FLUSH : job;
}

/* Records that the tally's total is complete, once all files have been found. */
static void note_total(struct source *s)
{
	if (s->walked.over && !s->walked.first && s->asides.count == 0 && s->taking == 0 &&
	    !s->large.unsized)
		atomic_store(&s->copy->tally->total_known, true);
}

/* Releases the lock meanwhile.  The lane counts this time itself, so it is subtracted as ns_spare.
 */
static int flush_lane(struct source_lane *l)
{
	struct source *s = l->source;
	uint64_t start = clock_ns();
	int ret;

	pthread_mutex_unlock(&s->copy->lock);
	ret = lane_flush(l->lane);
	pthread_mutex_lock(&s->copy->lock);
	l->unconfirmed = false;
	s->asides.sames_unconfirmed -= l->same_unconfirmed;
	l->same_unconfirmed = false;
	pthread_cond_broadcast(&s->copy->changed);
	l->use.ns_spare += clock_ns() - start;
	return ret;
}

/*
 * Waits until something changes.  That may be the answer to a block which this lane has sent, and
 * which is lost if the wire breaks.  Only this thread can get the lane another wire.  So while
 * blocks are unconfirmed, it waits until flush_ms at most, and then flushes the lane.
 *
 * While the walk runs, the time counts as reading.  Else it counts as spare if other lanes are
 * busy, and as waiting for the sink if none is.
 */
static int await_change(struct source_lane *l, uint64_t flush_ms)
{
	struct source *s = l->source;
	bool walking = s->walked.walking, others_busy = s->busy > l->busy;
	uint64_t start = clock_ns();
	struct timespec until;

	if (l->same_unconfirmed || (l->unconfirmed && clock_ms() >= flush_ms))
		return flush_lane(l);
	if (l->unconfirmed) {
		until = clock_after((uint64_t)clock_left(flush_ms));
		pthread_cond_timedwait(&s->copy->changed, &s->copy->lock, &until);
	} else {
		pthread_cond_wait(&s->copy->changed, &s->copy->lock);
	}
	if (!walking)
		*(others_busy ? &l->use.ns_spare : &l->use.ns_idle) += clock_ns() - start;
	return 0;
}

static enum job choose_job(struct source_lane *l, struct source_file **file)
{
	struct copy *c = l->source->copy;
	uint64_t flush_ms = clock_ms() + UNCONFIRMED_MS;
	enum job job;

	pthread_mutex_lock(&c->lock);
	source_publish_locked(l);
	for (;;) {
		bool any_taken = l->taken_at < l->taken_count;

		set_busy(l, any_taken || l->records.used > 0, any_taken);
		note_total(l->source);
		job = pick_job(l, file);
		if (job != JOB_WAIT)
			break;
		if (await_change(l, flush_ms)) {
			job = JOB_FAILED;
			break;
		}
	}
	if (job == JOB_OVER)
		set_busy(l, false, false);
	else
		set_busy(l, true, job != JOB_ANNOUNCE && job != JOB_READ && job != JOB_FLUSH);
	/* Other lanes may have the same job now. */
	if (job == JOB_OVER || job == JOB_OTHERS)
		pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	l->records_sent = false;
	return job;
}

/* ---- the thread ---------------------------------------------------------------------- */

static int do_job(struct source_lane *l, bool *over)
{
	struct source_file *f = NULL;

	switch (choose_job(l, &f)) {
	case JOB_FAILED:
	case JOB_WAIT:
		return -1;
	case JOB_OVER:
		*over = true;
		return source_send_records(l);
	case JOB_FLUSH:
		return source_send_records(l);
	case JOB_WALK:
		return source_walk(l);
	case JOB_ENTRIES:
		return source_send_entries(l);
	case JOB_ASIDES:
		return source_send_asides(l);
	case JOB_OTHERS:
		return source_send_others(l);
	case JOB_ANNOUNCE:
		return source_announce(l, f);
	case JOB_READ:
		return source_send_piece(l, f);
	}
	return -1;
}

/* Releases what the lane took and did not process. */
static void drop_taken(struct source_lane *l)
{
	struct aside *a;

	while (l->taken_at < l->taken_count)
		walk_piece_done(l->taken[l->taken_at++].piece, 1);
	while ((a = l->asides) != NULL) {
		l->asides = a->next;
		aside_free(a);
	}
	source_use_dir(l, NULL);
}

/* A lane is connected when it has its first block. */
static int start_lane(struct source_lane *l)
{
	int (*start)(void) = l->source->o->start;

	if (!start)
		return 0;
	return source_get_block(l) || start() ? -1 : 0;
}

void *source_lane_run(void *arg)
{
	struct source_lane *l = arg;
	struct copy *c = l->source->copy;
	bool over = false;
	int ret = start_lane(l);

	while (ret == 0 && !over) {
		ret = source_get_block(l);
		if (ret == 0)
			ret = do_job(l, &over);
	}
	if (ret == 0)
		ret = lane_flush(l->lane);
	if (ret && !atomic_load(&c->failed))
		session_fail(l->source->session);
	drop_taken(l);
	cpu_time_of(gettid(), &l->use.cpu);
	pthread_mutex_lock(&c->lock);
	l->source->working--;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
