/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"

enum { WAKE_MS = 50 };

static int send_total(struct copy *c, uint8_t type, const struct msg_total *m)
{
	uint8_t body[sizeof *m + 16];
	struct writer w = writer_of(body, sizeof body);

	msg_total_encode(&w, m);
	return session_send(c->session, type, body, w.used);
}

/* Call after the lanes' threads have ended. */
static void gather_times(const struct source *s, struct msg_times *m)
{
	times_begin(m, s->session, s->kind);
	for (unsigned i = 0; i < session_lanes(s->session); i++)
		times_add(m, session_lane(s->session, i), &s->lanes[i].use);
}

/* Lock held; releases it while sending. */
static int send_end(struct source *s)
{
	struct copy *c = s->copy;
	struct msg_total total = s->ended;
	struct msg_times times;
	int ret;

	/* As with rsync, vanished files do not prevent deletions. */
	total.incomplete =
		c->failed_here > 0 || s->continues_move || (s->walk && walk_incomplete(s->walk));
	c->end_sent = true;
	pthread_mutex_unlock(&c->lock);
	gather_times(s, &times);
	ret = copy_send_times(c, &times) || send_total(c, MSG_END, &total) ? -1 : 0;
	pthread_mutex_lock(&c->lock);
	return ret;
}

/* A thread that is blocked in reading a file that failed at the peer cannot see the failure.  So
 * this wakes all threads again and again until none is left. */
static void await_source_change(struct source *s)
{
	struct copy *c = s->copy;
	struct timespec until;

	if (s->large.failed_at_peer == 0) {
		pthread_cond_wait(&c->changed, &c->lock);
		return;
	}
	until = clock_after(WAKE_MS);
	pthread_cond_timedwait(&c->changed, &c->lock, &until);
	workers_wake();
}

/* DONE confirms that files which compared equal may be removed, like stored ones; then what had to
 * wait for all of these. */
static int accept_done(struct source *s)
{
	if (source_check_totals(s))
		return -1;
	if (s->removals.same)
		removals_queue_same(s);
	else
		removals_queue_lookalikes(s);
	return 0;
}

static int await_results(struct source *s)
{
	struct copy *c = s->copy;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	while (ret == 0 && (!c->done_received || s->removals.due || s->removals.linked ||
			    s->removals.same || s->removals.lookalikes)) {
		/* When all lanes have ended, all names have been found, too. */
		if (s->removals.linked && s->working == 0 && s->phase == 0)
			s->phase = 1;
		if (s->removals.linked && s->phase > 0)
			removals_queue_linked(s);
		if (removals_may_begin(s))
			removals_do_next(s);
		else if (c->done_received)
			ret = accept_done(s);
		else if (atomic_load(&c->failed))
			ret = -1;
		else if (s->working == 0 && !c->end_sent)
			ret = send_end(s);
		else
			await_source_change(s);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* The run ends without DONE.  After END the sink may have stored everything nevertheless, so the
 * failure states that the copy is not confirmed. */
static int fail_unconfirmed(struct source *s)
{
	struct failure f;

	copy_fail_session(s->copy);
	f = *failed();
	if (!s->copy->end_sent || (f.code != OUT_PEER_LOST && f.code != OUT_TIMEOUT))
		return -1;
	return fail_as(f.code, "not confirmed: %.900s", f.text);
}

/* ---- beginning ------------------------------------------------------------------------ */

static int prepare_source_lane(struct source *s, unsigned i)
{
	struct source_lane *l = &s->lanes[i];

	*l = (struct source_lane){
		.source = s,
		.lane = session_lane(s->session, i),
		.index = i,
		.large_due = 1,
		.digest = digest_new(),
		.scratch = aligned_alloc(DIRECT_ALIGN, CELL),
	};
	s->small_max = lane_block_size(l->lane) - SMALL_ROOM;
	if (s->small_max > SMALL_MAX)
		s->small_max = SMALL_MAX;
	l->keep = writer_of(l->keep_room, sizeof l->keep_room);
	if (!l->scratch)
		return fail_as(OUT_MEMORY, "start a lane: %m");
	return l->digest ? 0 : -1;
}

static int start_source_lane(struct source *s, unsigned i)
{
	char name[24];

	snprintf(name, sizeof name, "source %u", i);
	pthread_mutex_lock(&s->copy->lock);
	s->working++;
	pthread_mutex_unlock(&s->copy->lock);
	if (worker_start(&s->workers[i], name, source_lane_run, &s->lanes[i])) {
		pthread_mutex_lock(&s->copy->lock);
		s->working--;
		pthread_mutex_unlock(&s->copy->lock);
		return -1;
	}
	return 0;
}

static bool is_source_stopped(void *source)
{
	return copy_stopped(((struct source *)source)->copy);
}

static int open_source_stream(struct source *s)
{
	struct stopper stopper = {.stop = is_source_stopped, .ctx = s};
	struct source_file *f;

	if (source_file_stream(&s->o->stream, &stopper, &f))
		return -1;
	f->mode = modes_apply(s->modes, f->mode, false);
	stream_widen(f->fd);
	if (!s->rules->no_sparse)
		source_file_find_holes(f);
	source_file_choose(f, s->o->direct, &s->direct_missed);
	s->only = true;
	s->walked.over = true;
	return source_add_file(&s->lanes[0], f);
}

static int open_generated_file(struct source *s)
{
	struct stopper stopper = {.stop = is_source_stopped, .ctx = s};
	struct source_file *f;

	if (source_file_generated(s->o->memory_bytes, &stopper, &f))
		return -1;
	s->only = true;
	s->walked.over = true;
	return source_add_file(&s->lanes[0], f);
}

/* A pattern of the far end counts as one SRC until it is expanded. */
static int check_single_source(const struct source *s)
{
	const struct found *f = &s->found;

	if (!s->rules->no_target_dir || f->count <= 1)
		return 0;
	return fail_as(OUT_USAGE,
		       "-T takes one SRC: %s matches %u names, which cannot all become DST",
		       s->o->names[0], f->count);
}

static int find_files(struct source *s)
{
	const struct source_opts *o = s->o;
	struct walk_opts wo = {
		.found = &s->found,
		.rules = s->rules,
	};

	if (find_sources(o->names, o->count, o->expand, &s->found) || check_single_source(s) ||
	    source_note_root_names(s) || walk_new(&wo, &s->walk))
		return -1;
	s->only = walk_is_one_file(s->walk);
	removals_choose_time(s);
	source_find_first_markers(s);
	return 0;
}

/* The most blocks that can be in flight. */
static unsigned count_all_blocks(const struct source *s)
{
	return session_lanes(s->session) * lane_depth(session_lane(s->session, 0));
}

static int apply_rules(struct source *s)
{
	const struct rules *r = s->rules;

	s->asks = s->o->rules != NULL;
	s->asks_all = s->asks && rules_ask(r);
	s->asides.max = ASIDE_MAX;
	s->asides.compared_max = UINT_MAX;
	if (r->checksum) {
		s->asides.max = COMPARED_MAX;
		s->asides.compared_max = COMPARED_MAX / count_all_blocks(s) + 1;
	}
	s->removes = r->remove_source && !r->dry_run;
	if (modes_parse(r->chmod, &s->modes))
		return -1;
	if (!r->numeric_ids && (r->owner || r->group || r->acls))
		return owners_new(&s->owners);
	return 0;
}

static int begin_source(struct source *s)
{
	unsigned lanes = session_lanes(s->session);

	if (apply_rules(s))
		return -1;
	for (unsigned i = 0; i < lanes; i++) {
		if (prepare_source_lane(s, i))
			return -1;
	}
	if (s->o->memory_bytes     ? open_generated_file(s)
	    : s->o->stream.fd >= 0 ? open_source_stream(s)
				   : find_files(s))
		return -1;
	for (unsigned i = 0; i < lanes; i++) {
		if (start_source_lane(s, i))
			return -1;
	}
	return 0;
}

/* ---- the end -------------------------------------------------------------------------- */

static void free_live(void *ctx, enum live kind, struct live_file *file)
{
	(void)ctx;
	if (kind == LIVE_FILE)
		source_file_free(file->object);
	else if (kind == LIVE_ASKED)
		aside_free(file->object);
	else if (kind != LIVE_TAKEN)
		removal_free(file->object);
}

/* Frees the files that were not asked about.  ids_free() frees the others. */
static void free_parked(struct aside *a)
{
	while (a) {
		struct aside *next = a->next;

		if (a->id == 0)
			aside_free(a);
		a = next;
	}
}

static void free_lane(struct source_lane *l)
{
	/* These were never published. */
	for (unsigned i = 0; i < l->unpublished_count; i++)
		free_live(NULL, l->unpublished[i].kind, &l->unpublished[i].file);
	digest_free(l->digest);
	free(l->scratch);
}

static void free_queue(struct source *s)
{
	struct walk_piece *p;

	while ((p = s->walked.first) != NULL) {
		s->walked.first = p->next;
		walk_piece_done(p, p->count);
	}
}

static void source_free(struct source *s)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++)
		free_lane(&s->lanes[i]);
	free_parked(s->asides.ready[0]);
	free_parked(s->asides.ready[1]);
	ids_free(&s->ids, free_live, NULL);
	links_free(&s->links);
	others_free(&s->others);
	others_free(&s->hard_links);
	removals_free(s);
	source_free_markers(s);
	free_queue(s);
	for (unsigned i = 0; i < s->top_count; i++)
		walk_dir_put(s->tops[i]);
	walk_free(s->walk);
	owners_free(s->owners);
	modes_free(s->modes);
	found_free(&s->found);
	free(s->root_names.slots);
	free(s);
}

static void add_lane_counts(struct source *s, struct msg_counts *to)
{
	for (unsigned i = 0; i < session_lanes(s->session); i++) {
		const struct msg_counts *c = &s->lanes[i].counts;

		to->regular += c->regular;
		to->dirs += c->dirs;
		to->symlinks += c->symlinks;
		to->hard_links += c->hard_links;
		to->nodes += c->nodes;
		to->sent += c->sent;
		to->had += c->had;
		to->holes += c->holes;
	}
}

static struct source *source_new(struct copy *c, struct session *session,
				 const struct source_opts *o)
{
	struct source *s = calloc(1, sizeof *s);

	if (!s) {
		fail_as(OUT_MEMORY, "start a copy: %m");
		return NULL;
	}
	s->copy = c;
	s->session = session;
	s->kind = KIND_DISK;
	s->o = o;
	s->plain = RULES_PLAIN;
	s->rules = o->rules ? o->rules : &s->plain;
	s->links = LINKS_NONE;
	s->removals.unlinked = TABLE_BY(unlinked, inode);
	s->large.open_end = &s->large.open;
	s->removals.due_end = &s->removals.due;
	s->walked.end = &s->walked.first;
	s->asides.ready_end[0] = &s->asides.ready[0];
	s->asides.ready_end[1] = &s->asides.ready[1];
	return s;
}

/* If the command that started the run is gone, the user runs it again, although all is done. */
static bool can_report_verdict(const struct source *s)
{
	struct pollfd p = {.fd = s->o->verdict, .events = POLLOUT};

	return p.fd <= 0 || RETRIED(poll(&p, 1, 0)) < 0 ||
	       !(p.revents & (POLLERR | POLLHUP | POLLNVAL));
}

int source_run(struct copy *c, struct session *session, const struct source_opts *o,
	       struct tally *t, struct copy_result *r)
{
	struct source *s = source_new(c, session, o);
	int ret;

	copy_begin(c, t, r);
	if (!s)
		return session_fail(session);
	copy_attach(c, session, s);
	ret = begin_source(s) ? session_fail(session) : await_results(s);
	if (ret == 0)
		ret = source_check_totals(s) ? session_fail(session) : 0;
	else
		session_fail(session);
	copy_join(s->workers, LANE_COUNT_MAX);
	copy_attach(c, session, NULL);
	add_lane_counts(s, &r->counts);
	gather_times(s, &r->times);
	if (ret) {
		ret = fail_unconfirmed(s);
	} else {
		r->total = c->total;
		ret = copy_verdict(c, s->only);
		source_remove_markers(s, ret == 0 && can_report_verdict(s));
	}
	source_free(s);
	return ret;
}
