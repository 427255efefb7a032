/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"

/* ---- records and blocks -------------------------------------------------------------- */

static int take_data(struct sink_lane *l, const struct record_data *r)
{
	return sink_take_piece(
		l, &(struct piece){.id = r->id, .pos = r->pos, .len = r->len, .bytes = r->bytes});
}

static int take_hole(struct sink_lane *l, const struct record_hole *r)
{
	return sink_take_piece(l, &(struct piece){.id = r->id, .pos = r->pos, .len = r->len});
}

static int take_have(struct sink_lane *l, const struct record_have *r)
{
	return sink_take_piece(
		l, &(struct piece){.id = r->id, .pos = r->pos, .len = r->len, .have = true});
}

static int take_file_record(struct sink_lane *l, struct reader *reader, const struct record_file *r)
{
	int small;

	if (r->flags & FILE_ASK)
		return sink_take_question(l, r);
	small = sink_take_small(l, reader, r);
	return small < 0 ? -1 : small > 0 ? 0 : sink_take_file(l, r);
}

static int take_record(struct sink_lane *l, struct reader *reader, const struct record *r)
{
	switch (r->type) {
	case RECORD_FILE:
		return take_file_record(l, reader, &r->file);
	case RECORD_DATA:
		return take_data(l, &r->data);
	case RECORD_FILE_END:
		return sink_take_file_end(l, &r->end);
	case RECORD_HOLE:
		return take_hole(l, &r->hole);
	case RECORD_DIR:
		return sink_take_dir(l, &r->dir);
	case RECORD_OWNER:
		return sink_take_owner(l, &r->owner);
	case RECORD_XATTR:
		return sink_take_xattr(l, &r->xattr);
	case RECORD_HAVE:
		return take_have(l, &r->have);
	case RECORD_SAME:
		return sink_take_same(l, &r->same);
	case RECORD_KEEP:
		return sink_take_keep(l, &r->keep);
	case RECORD_ORIGIN:
		return sink_take_origin(l, &r->origin);
	}
	return fail_as(OUT_PROTOCOL, "unknown record %u from the peer", r->type);
}

static int take_records(struct sink_lane *l, const struct block *b)
{
	struct reader reader = reader_of(b->data, b->len);
	struct record *r = &l->record;
	int ret;

	while ((ret = record_next(&reader, r)) > 0) {
		/* A question ends with the last of its attributes. */
		if (l->question.open &&
		    (r->type != RECORD_XATTR || r->xattr.id != l->question.r.id) && sink_answer(l))
			return -1;
		if (take_record(l, &reader, r))
			return -1;
	}
	if (ret == 0 && l->question.open)
		ret = sink_answer(l);
	return ret;
}

static int take_block(struct sink_lane *l, const struct block *b)
{
	struct piece p = {
		.id = b->file,
		.pos = b->pos,
		.len = b->len,
		.bytes = b->data,
		.block = b,
	};

	return b->kind == BLOCK_EXTENT ? sink_take_piece(l, &p) : take_records(l, b);
}

/* A source sends END after it has all credits.  A block after END would be stored while the main
 * thread deletes. */
static int enter_block(struct sink *s)
{
	bool late;

	pthread_mutex_lock(&s->copy->lock);
	late = s->copy->end_received;
	s->busy_lanes += !late;
	pthread_mutex_unlock(&s->copy->lock);
	return late ? fail_as(OUT_PROTOCOL, "the peer sends blocks after END") : 0;
}

static void leave_block(struct sink_lane *l, uint64_t ns_paced)
{
	struct sink *s = l->sink;

	pthread_mutex_lock(&s->copy->lock);
	s->busy_lanes--;
	l->use.ns_paced += ns_paced;
	pthread_mutex_unlock(&s->copy->lock);
}

static int use_block(struct sink_lane *l, const struct block *b)
{
	int ret = enter_block(l->sink);
	uint64_t paced_ns = 0;

	if (ret == 0)
		ret = take_block(l, b);
	if (ret == 0)
		ret = sink_flush(l);
	/* Pace before the block is returned, because the late credit slows the source down. */
	if (ret == 0)
		ret = session_pace(l->sink->session, b->wire_len, &paced_ns);
	if (ret == 0)
		leave_block(l, paced_ns);
	return ret;
}

static void *sink_lane_run(void *arg)
{
	struct sink_lane *l = arg;
	struct copy *c = l->sink->copy;
	struct block *b;
	int ret;

	atomic_store(&l->tid, gettid());
	do {
		ret = lane_recv(l->lane, &b);
		if (ret == 0)
			ret = use_block(l, b);
		if (ret == 0)
			ret = lane_put(l->lane, b);
	} while (ret == 0);
	if (!atomic_load(&c->done_sent) && !atomic_load(&c->failed))
		session_fail(l->sink->session);
	return NULL;
}

/* ---- waiting for each other ----------------------------------------------------------- */

static void wake_waiting_lanes(void *sink)
{
	struct sink *s = sink;

	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		if (s->lanes[i].waits_for)
			pthread_cond_signal(&s->lanes[i].wakeup);
	}
}

void sink_wake(struct sink *s, const void *object)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		if (s->lanes[i].waits_for == object)
			pthread_cond_signal(&s->lanes[i].wakeup);
	}
}

void sink_wait(struct sink_lane *l, const void *object, uint64_t ms)
{
	struct timespec until = clock_after(ms);

	l->waits_for = object;
	if (ms > 0)
		pthread_cond_timedwait(&l->wakeup, &l->sink->copy->lock, &until);
	else
		pthread_cond_wait(&l->wakeup, &l->sink->copy->lock);
	l->waits_for = NULL;
}

void sink_times(struct sink *s, uint64_t ns_finish, struct msg_times *m)
{
	times_begin(m, s->session, (enum stage_kind)atomic_load(&s->kind));
	m->ns_finish = ns_finish;
	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		struct sink_lane *l = &s->lanes[i];
		struct lane_use use;

		pthread_mutex_lock(&s->copy->lock);
		use = l->use;
		pthread_mutex_unlock(&s->copy->lock);
		cpu_time_of(atomic_load(&l->tid), &use.cpu);
		times_add(m, session_lane(s->session, i), &use);
	}
}

/* ---- the run ------------------------------------------------------------------------- */

/* Something was deleted to make way for another entry.  In the thread of that entry's lane. */
static void on_cleared(void *copy, enum event_what what, const char *path)
{
	struct copy *c = copy;

	sink_report_deleted(c->running, what, path, NULL);
}

/* Reports the first ones, and counts all of them for the verdict (sink_finish_run.c). */
static void on_unkept(void *copy, enum event_what what, const char *path, const struct failure *why)
{
	struct copy *c = copy;
	struct sink *s = c->running;
	struct msg_event e = {
		.what = (uint8_t)what,
		.code = (uint8_t)why->code,
		.path = path,
		.path_len = (uint16_t)strlen(path),
	};
	unsigned before = atomic_fetch_add(&s->unkept, 1);

	if (before == 0)
		s->first_unkept = *why;
	if (before < SINK_UNKEPT_REPORTED)
		copy_report_failure(c, path, why);
	if (s->rules->events)
		copy_report_event(c, &e);
}

static int open_place(struct sink *s)
{
	const struct sink_opts *o = s->o;
	struct place_opts po = {
		.target = o->target,
		.wants = (const char *const *)o->wants,
		.peer = o->peer,
		.rules = s->rules,
		.many = o->many,
		.expand = o->expand,
		.owners = s->owners,
		.stop = copy_stopped,
		.on_cleared = on_cleared,
		.on_unkept = on_unkept,
		.taken = o->taken,
		.on_taken = copy_report_taken,
		.ctx = s->copy,
	};

	return o->discard || o->stream.fd >= 0 ? 0 : place_open(&po, &s->place);
}

static int start_sink_lane(struct sink *s, unsigned i)
{
	struct sink_lane *l = &s->lanes[i];
	char name[24];

	l->sink = s;
	l->lane = session_lane(s->session, i);
	l->index = i;
	l->digest = digest_new();
	if (!l->digest)
		return -1;
	if (s->rules->verify)
		digest_track_nonzero(l->digest);
	l->mail = malloc(sizeof *l->mail);
	if (!l->mail)
		return fail_as(OUT_MEMORY, "start a lane: %m");
	l->mail->stored.count = 0;
	l->mail->answers.count = 0;
	l->mail->cells.count = 0;
	snprintf(name, sizeof name, "sink %u", i);
	return worker_start(&s->workers[i], name, sink_lane_run, l);
}

static int start_sink_lanes(struct sink *s)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		if (start_sink_lane(s, i))
			return -1;
	}
	return 0;
}

static int await_end(struct copy *c)
{
	int ret;

	pthread_mutex_lock(&c->lock);
	while (!c->end_received && !atomic_load(&c->failed))
		pthread_cond_wait(&c->changed, &c->lock);
	ret = atomic_load(&c->failed) ? -1 : 0;
	pthread_mutex_unlock(&c->lock);
	return ret;
}

static void join_sink_lanes(struct sink *s)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++)
		lane_abort(session_lane(s->session, i));
	copy_join(s->workers, LANE_COUNT_MAX);
}

static struct sink *sink_new(struct copy *c, struct session *session, const struct sink_opts *o)
{
	struct sink *s = calloc(1, sizeof *s);
	pthread_condattr_t attr;

	if (!s) {
		fail_as(OUT_MEMORY, "start a copy: %m");
		return NULL;
	}
	s->copy = c;
	s->session = session;
	s->o = o;
	s->plain = RULES_PLAIN;
	s->rules = o->rules ? o->rules : &s->plain;
	atomic_store(&s->kind, o->discard ? KIND_MEMORY : KIND_DISK);
	s->dirs.by_id = TABLE_BY(sink_dir, id);
	writeback_begin(&s->writeback, s->rules->fsync);
	clones_begin(&s->clones, o->clones > 0 ? o->clones : -1);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	for (unsigned i = 0; i < session_lanes(session); i++)
		pthread_cond_init(&s->lanes[i].wakeup, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

static void free_sink_lane(struct sink_lane *l)
{
	pthread_cond_destroy(&l->wakeup);
	digest_free(l->digest);
	xattrs_free(l->question.xattrs);
	free(l->scratch);
	free(l->mail);
}

static void sink_free(struct sink *s)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++)
		free_sink_lane(&s->lanes[i]);
	sink_dirs_free(s);
	place_close(s->place);
	owners_free(s->owners);
	clones_end(&s->clones);
	free(s);
}

/* After a signal or with a lost peer a later run may resume what was stored. */
static bool may_resume_after(const struct failure *f)
{
	return f->code == OUT_SIGNAL || f->code == OUT_PEER_LOST || f->code == OUT_TIMEOUT;
}

static int run_to_done(struct sink *s)
{
	if (owners_new(&s->owners) || open_place(s) || start_sink_lanes(s) || await_end(s->copy))
		return -1;
	return sink_finish_run(s);
}

static int on_sink_frame(struct copy *c, const struct frame *f)
{
	struct msg_total total;
	bool twice;

	if (f->type != MSG_END)
		return copy_fail_unexpected(f);
	if (msg_total_decode(f, &total))
		return -1;
	pthread_mutex_lock(&c->lock);
	twice = c->end_received;
	c->end_received = true;
	if (!twice)
		c->total = total;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return twice ? fail_as(OUT_PROTOCOL, "the peer sent END twice") : 0;
}

const struct copy_role sink_role = {.role = ROLE_SINK,
				    .on_frame = on_sink_frame,
				    .wake = wake_waiting_lanes};

int sink_run(struct copy *c, struct session *session, const struct sink_opts *o, struct tally *t,
	     struct copy_result *r)
{
	struct sink *s = sink_new(c, session, o);
	struct failure f;
	int ret;

	copy_begin(c, t, r);
	if (!s)
		return session_fail(session);
	copy_attach(c, session, s);
	ret = run_to_done(s);
	if (ret < 0) {
		session_fail(session);
		copy_join(s->workers, LANE_COUNT_MAX);
		copy_attach(c, session, NULL);
		copy_fail_session(c);
		f = *failed();
		sink_drop_files(s, may_resume_after(&f));
		fail_again(&f);
	} else {
		join_sink_lanes(s);
		copy_attach(c, session, NULL);
		ret = copy_verdict(c, ret == 1);
	}
	f = *failed();
	r->counts = s->sums.counts;
	if (ret)
		sink_times(s, 0, &r->times);
	sink_free(s);
	return ret ? fail_again(&f) : 0;
}
