/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"

enum { WAKE_MS = 50 };

/* ---- work ---------------------------------------------------------------------------- */

static enum job pick_open(struct source_lane *l, struct source_file *f)
{
	uint64_t bit = UINT64_C(1) << l->index;
	bool new = !(f->announced & bit);

	f->announced |= bit;
	f->busy++;
	return new ? JOB_ANNOUNCE : JOB_READ;
}

/* Lock held; JOB_FLUSH where one would have to wait, for a lane without records: wait. */
static enum job pick_now(struct source_lane *l, struct source_file **file, unsigned *index)
{
	struct source *s = l->source;
	bool records = l->records.used > 0;

	if (atomic_load(&s->copy->failed))
		return JOB_FAILED;
	if (s->open && records)
		return JOB_FLUSH;
	if (s->open) {
		*file = s->open;
		return pick_open(l, s->open);
	}
	if (s->next < s->found.count && s->large < UNFINISHED_MAX) {
		*index = s->next++;
		s->opening++;
		return JOB_OPEN;
	}
	if (s->next >= s->found.count && s->opening == 0)
		return JOB_OVER;
	return JOB_FLUSH;
}

enum job source_pick(struct source_lane *l, struct source_file **file, unsigned *index)
{
	struct copy *c = l->source->copy;
	enum job job;

	pthread_mutex_lock(&c->lock);
	job = pick_now(l, file, index);
	while (job == JOB_FLUSH && l->records.used == 0) {
		pthread_cond_wait(&c->changed, &c->lock);
		job = pick_now(l, file, index);
	}
	pthread_mutex_unlock(&c->lock);
	return job;
}

static struct source_file **live_slot(struct source *s, uint32_t id)
{
	struct source_file **at = &s->live[id % RESULT_BUCKETS];

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

/* Lock held. */
static void number(struct source_lane *l, struct source_file *f, bool small)
{
	struct source *s = l->source;
	struct tally *t = s->copy->tally;

	f->id = ++s->last_id;
	if (s->found.count > 1)
		f->flags |= FILE_MANY;
	f->small = small;
	if (small)
		f->announced = UINT64_C(1) << l->index;
	s->unfinished++;
	s->large += !small;
	s->unsized |= (f->flags & FILE_STREAM) && !(f->stream && f->stream->size);
	*live_slot(s, f->id) = f;
	atomic_fetch_add(&t->total, f->stream && f->stream->size ? f->stream->size : f->size);
	if (!small) {
		*s->open_end = f;
		s->open_end = &f->next_open;
	}
}

static void opened(struct source *s)
{
	s->opening--;
	if (s->opening == 0 && s->next >= s->found.count && !s->unsized)
		atomic_store(&s->copy->tally->total_known, true);
	pthread_cond_broadcast(&s->copy->changed);
}

void source_number(struct source_lane *l, struct source_file *f, bool small)
{
	struct source *s = l->source;

	pthread_mutex_lock(&s->copy->lock);
	number(l, f, small);
	opened(s);
	pthread_mutex_unlock(&s->copy->lock);
}

int source_hold(struct source *s, struct source_file *f)
{
	int ret = 0;

	if (!s->o->remove_source)
		return 0;
	pthread_mutex_lock(&s->copy->lock);
	ret = source_file_hold(f, &s->dir);
	pthread_mutex_unlock(&s->copy->lock);
	return ret;
}

void source_drop(struct source *s, struct source_file *f)
{
	pthread_mutex_lock(&s->copy->lock);
	source_file_free(f);
	pthread_mutex_unlock(&s->copy->lock);
}

int source_open_failed(struct source *s, const char *path)
{
	struct failure why;

	if (copy_interrupted(s->copy))
		return -1;
	why = *failed();
	pthread_mutex_lock(&s->copy->lock);
	s->ended.failed++;
	s->agreed.failed++;
	copy_count_failure(s->copy, &why, false);
	opened(s);
	pthread_mutex_unlock(&s->copy->lock);
	if (s->only)
		return fail_again(&why);
	copy_tell(s->copy, path, &why);
	return 0;
}

/* Lock held. */
static void exhaust(struct source *s, struct source_file *f)
{
	struct source_file **at = &s->open;

	if (f->exhausted)
		return;
	f->exhausted = true;
	while (*at && *at != f)
		at = &(*at)->next_open;
	if (*at) {
		*at = f->next_open;
		if (s->open_end == &f->next_open)
			s->open_end = at;
	}
	pthread_cond_broadcast(&s->copy->changed);
}

void source_exhaust(struct source *s, struct source_file *f, bool why)
{
	pthread_mutex_lock(&s->copy->lock);
	if (why && !f->failed) {
		f->failed = true;
		f->failure = *failed();
		atomic_store(&f->stop, true);
	}
	exhaust(s, f);
	pthread_mutex_unlock(&s->copy->lock);
}

bool source_leave(struct source *s, struct source_file *f, uint64_t data, uint64_t holes,
		  const uint64_t sum[2])
{
	bool last;

	pthread_mutex_lock(&s->copy->lock);
	f->data += data;
	f->holes += holes;
	sum_add(f->sum, sum);
	f->busy--;
	last = f->exhausted && f->busy == 0 && !f->ending;
	if (last)
		f->ending = true;
	pthread_mutex_unlock(&s->copy->lock);
	return last;
}

/* ---- ends and results ---------------------------------------------------------------- */

/* Lock held: nobody needs it any more, but perhaps the one who unlinks it. */
static void let_go(struct source *s, struct source_file *f, bool stored)
{
	struct source_file **at = live_slot(s, f->id);

	*at = f->next;
	f->next = NULL;
	s->unfinished--;
	s->large -= !f->small;
	pthread_cond_broadcast(&s->copy->changed);
	if (stored && f->dir) {
		*s->stored_end = f;
		s->stored_end = &f->next;
	} else {
		source_file_free(f);
	}
}

/* The whole of it was read, and this thread's failure is none of it: 0. */
static int judge(struct source_file *f)
{
	uint64_t sum[2];

	digest_sum(f->ordered, sum);
	sum_add(f->sum, sum);
	if (f->flags & FILE_STREAM)
		f->size = f->data;
	if (source_file_check(f))
		return -1;
	if (f->stream && !(f->flags & FILE_STREAM))
		lseek(f->fd, (off_t)(f->base + f->size), SEEK_SET);
	return f->stream && f->stream->finish ? f->stream->finish(f->stream->ctx) : 0;
}

static void fill_end(const struct source_file *f, struct record_file_end *r)
{
	*r = (struct record_file_end){
		.id = f->id,
		.size = f->size,
		.data = f->data,
		.holes = f->holes,
		.lanes = (uint16_t)__builtin_popcountll(f->announced),
		.digest = {f->sum[0], f->sum[1]},
		.code = (uint8_t)(f->failed ? f->failure.code : OUT_DONE),
	};
	if (f->failed)
		snprintf(r->text, sizeof r->text, "%s", f->failure.text);
}

static void count_end(struct source *s, const struct source_file *f)
{
	if (f->failed) {
		s->ended.failed++;
		s->agreed.failed++;
		copy_count_failure(s->copy, &f->failure, f->failed_at_peer);
		return;
	}
	s->ended.files++;
	s->ended.bytes += f->size;
	sum_add(s->ended.digest, f->sum);
}

void source_end(struct source *s, struct source_file *f, struct record_file_end *r)
{
	struct failure why;
	bool tell;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	ret = f->failed ? -1 : 0;
	pthread_mutex_unlock(&s->copy->lock);
	if (ret == 0)
		ret = judge(f);
	pthread_mutex_lock(&s->copy->lock);
	if (ret && !f->failed) {
		f->failed = true;
		f->failure = *failed();
	}
	if (!f->stream) {
		close(f->fd);
		f->fd = -1;
	}
	fill_end(f, r);
	count_end(s, f);
	f->ended = true;
	tell = f->failed && !f->failed_at_peer && !s->only;
	why = f->failure;
	if (tell) {
		/* The result may come and free it meanwhile. */
		char *path = strdup(f->path);

		pthread_mutex_unlock(&s->copy->lock);
		copy_tell(s->copy, path ? path : "", &why);
		free(path);
		pthread_mutex_lock(&s->copy->lock);
	} else if (f->failed_at_peer) {
		s->deaf--;
		let_go(s, f, false);
	}
	pthread_mutex_unlock(&s->copy->lock);
}

static int result_of_failure(struct source *s, struct source_file *f,
			     const struct msg_file_result *m)
{
	struct failure why = {.code = outcome_from(m->code)};

	snprintf(why.text, sizeof why.text, "%s", m->text);
	if (!f->ended) {
		f->failed = true;
		f->failed_at_peer = true;
		f->failure = why;
		s->deaf++;
		/* Whoever takes it up next, or has it now, makes its end; main wakes him. */
		atomic_store(&f->stop, true);
		pthread_cond_broadcast(&s->copy->changed);
		return 0;
	}
	/* One that failed here is only acknowledged. */
	if (!f->failed) {
		s->agreed.failed++;
		copy_count_failure(s->copy, &why, true);
	}
	let_go(s, f, false);
	return 0;
}

int source_result(struct source *s, const struct msg_file_result *m)
{
	struct source_file *f = *live_slot(s, m->file);

	if (!f || f->failed_at_peer)
		return fail_as(OUT_PROTOCOL, "the peer has a result for an unknown file");
	if (m->code != OUT_DONE)
		return result_of_failure(s, f, m);
	if (!f->ended || f->failed)
		return fail_as(OUT_PROTOCOL, "the peer has a result for a file not sent");
	s->agreed.files++;
	s->agreed.bytes += f->size;
	sum_add(s->agreed.digest, f->sum);
	atomic_fetch_add(&s->copy->tally->files, 1);
	let_go(s, f, true);
	return 0;
}

/* ---- the run ------------------------------------------------------------------------- */

/* Lock held, and left for the time of it. */
static void remove_stored(struct source *s)
{
	struct source_file *f = s->stored;
	struct failure why;
	int ret;

	s->stored = f->next;
	if (!s->stored)
		s->stored_end = &s->stored;
	pthread_mutex_unlock(&s->copy->lock);
	ret = source_file_remove(f);
	why = *failed();
	if (ret && !s->only)
		copy_tell(s->copy, f->path, &why);
	pthread_mutex_lock(&s->copy->lock);
	if (ret)
		copy_count_failure(s->copy, &why, false);
	source_file_free(f);
}

static int send_total(struct copy *c, uint8_t type, const struct msg_total *m)
{
	uint8_t body[sizeof *m + 16];
	struct writer w = writer_of(body, sizeof body);

	msg_total_encode(&w, m);
	return session_send(c->session, type, body, w.used);
}

/* Lock held, and left for the time of it. */
static int say_end(struct source *s)
{
	struct copy *c = s->copy;
	struct msg_total total = s->ended;
	int ret;

	c->end_sent = true;
	pthread_mutex_unlock(&c->lock);
	ret = send_total(c, MSG_END, &total);
	pthread_mutex_lock(&c->lock);
	return ret;
}

/* A thread blocked in reading for a file that failed at the peer can't know; so call again. */
static void wait_for_news(struct source *s)
{
	struct copy *c = s->copy;
	struct timespec until;

	if (s->deaf == 0) {
		pthread_cond_wait(&c->changed, &c->lock);
		return;
	}
	until = clock_after(WAKE_MS);
	pthread_cond_timedwait(&c->changed, &c->lock, &until);
	workers_wake();
}

static int await(struct source *s)
{
	struct copy *c = s->copy;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	while (ret == 0 && (!c->done_came || s->stored)) {
		if (s->stored)
			remove_stored(s);
		else if (atomic_load(&c->failed))
			ret = -1;
		else if (s->working == 0 && !c->end_sent)
			ret = say_end(s);
		else
			wait_for_news(s);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

static int agree(struct source *s)
{
	const struct msg_total *theirs = &s->copy->total, *ours = &s->agreed;

	if (theirs->files != ours->files || theirs->failed != ours->failed ||
	    theirs->bytes != ours->bytes || theirs->digest[0] != ours->digest[0] ||
	    theirs->digest[1] != ours->digest[1] || s->unfinished > 0)
		return fail_as(OUT_INTEGRITY,
			       "the receiving end's totals differ from what was sent");
	return 0;
}

/* What to say when there is no DONE. */
static int not_confirmed(struct source *s)
{
	struct failure f;

	copy_session_failure(s->copy);
	f = *failed();
	if (!s->copy->end_sent || (f.code != OUT_PEER_LOST && f.code != OUT_TIMEOUT))
		return -1;
	return fail_as(f.code, "not confirmed: %.900s", f.text);
}

static int lane_start(struct source *s, unsigned i)
{
	struct source_lane *l = &s->lanes[i];
	uint32_t block = lane_block_size(session_lane(s->session, i));
	char name[24];

	*l = (struct source_lane){
		.source = s,
		.lane = session_lane(s->session, i),
		.index = i,
		.digest = digest_new(),
	};
	if (!l->digest)
		return -1;
	l->scratch = malloc(block < SMALL_MAX ? block : SMALL_MAX);
	if (!l->scratch)
		return fail_as(OUT_MEMORY, "start a lane: %m");
	snprintf(name, sizeof name, "source %u", i);
	pthread_mutex_lock(&s->copy->lock);
	s->working++;
	pthread_mutex_unlock(&s->copy->lock);
	if (worker_start(&s->workers[i], name, source_lane_run, l)) {
		pthread_mutex_lock(&s->copy->lock);
		s->working--;
		pthread_mutex_unlock(&s->copy->lock);
		return -1;
	}
	return 0;
}

static bool source_stop(void *source)
{
	return copy_stopped(((struct source *)source)->copy);
}

static int take_stream(struct source *s)
{
	struct stopper stopper = {.stop = source_stop, .ctx = s};
	struct source_file *f;

	if (source_file_stream(&s->o->stream, &stopper, &f))
		return -1;
	stream_widen(f->fd);
	if (!s->o->no_sparse)
		source_file_find_holes(f);
	atomic_store(&s->copy->tally->total_known,
		     !(f->flags & FILE_STREAM) || s->o->stream.size > 0);
	pthread_mutex_lock(&s->copy->lock);
	number(&s->lanes[0], f, false);
	pthread_mutex_unlock(&s->copy->lock);
	return 0;
}

static int begin(struct source *s)
{
	unsigned lanes = session_lanes(s->session);

	if (s->o->stream.fd >= 0) {
		s->only = true;
		s->lanes[0].source = s;
		if (take_stream(s))
			return -1;
	} else {
		if (find_sources(s->o->names, s->o->count, s->o->expand, &s->found))
			return -1;
		s->only = s->found.count == 1;
	}
	for (unsigned i = 0; i < lanes; i++) {
		if (lane_start(s, i))
			return -1;
	}
	return 0;
}

static void source_free(struct source *s)
{
	struct source_file *f;

	for (unsigned i = 0; i < LANE_COUNT_MAX; i++) {
		digest_free(s->lanes[i].digest);
		free(s->lanes[i].scratch);
	}
	for (unsigned i = 0; i < RESULT_BUCKETS; i++) {
		while ((f = s->live[i]) != NULL) {
			s->live[i] = f->next;
			source_file_free(f);
		}
	}
	while ((f = s->stored) != NULL) {
		s->stored = f->next;
		source_file_free(f);
	}
	source_dir_put(s->dir);
	found_free(&s->found);
	free(s);
}

/* From here on, or no more, frames have somebody to go to. */
static void attach(struct copy *c, struct session *session, struct source *s)
{
	pthread_mutex_lock(&c->lock);
	c->session = session;
	c->source = s;
	pthread_mutex_unlock(&c->lock);
}

int source_run(struct copy *c, struct session *session, const struct source_opts *o,
	       struct tally *t, struct copy_result *r)
{
	struct source *s = calloc(1, sizeof *s);
	int ret;

	r->total = (struct msg_total){0};
	r->at_peer = false;
	c->session = session;
	c->tally = t;
	c->result = r;
	if (!s) {
		fail_as(OUT_MEMORY, "start a copy: %m");
		return session_fail(session);
	}
	s->copy = c;
	s->session = session;
	s->o = o;
	s->open_end = &s->open;
	s->stored_end = &s->stored;
	attach(c, session, s);
	ret = begin(s) ? session_fail(session) : await(s);
	if (ret == 0)
		ret = agree(s) ? session_fail(session) : 0;
	else
		session_fail(session);
	copy_join(s->workers, LANE_COUNT_MAX);
	attach(c, session, NULL);
	if (ret) {
		ret = not_confirmed(s);
	} else {
		r->total = c->total;
		ret = copy_verdict(c, s->only);
	}
	source_free(s);
	return ret;
}
