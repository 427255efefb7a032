/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/content_digest.h"

/* ---- ends of files ------------------------------------------------------------------- */

/* f has its result and is freed; if it was stored, its removal is queued.  Lock held. */
static void finish_source_file(struct source *s, struct source_file *f, bool stored)
{
	s->unfinished--;
	s->large.count--;
	pthread_cond_broadcast(&s->copy->changed);
	if (stored) {
		removal_queue(s, f->removal);
		f->removal = NULL;
	}
	source_file_free(f);
}

/* Computes the digest of --print-digest by reading the file again, which a stream does not allow.
 */
static int digest_content(const struct source *s, const struct source_file *f,
			  struct record_file_end *r)
{
	struct stopper stopper = {.stop = copy_stopped, .ctx = s->copy};

	if (s->rules->digest == CONTENT_NONE || (f->flags & FILE_STREAM))
		return 0;
	if (content_digest_of(f->fd, f->shown, f->base, f->size, s->rules->digest, &stopper,
			      r->content))
		return -1;
	r->content_len = (uint8_t)content_digest_size(s->rules->digest);
	return 0;
}

/* Everything was read.  0: the file did not change.  -1: the file fails. */
static int check_read_file(const struct source *s, struct source_file *f, struct record_file_end *r)
{
	const struct stream *stream;
	uint64_t sum[2];

	digest_sum(f->ordered, sum);
	sum_add(f->sum, sum);
	if (f->flags & FILE_STREAM)
		f->size = f->data;
	if (digest_content(s, f, r) || source_file_check(f))
		return -1;
	if (f->stream && !(f->flags & FILE_STREAM))
		lseek(f->fd, (off_t)(f->base + f->size), SEEK_SET);
	/* finish() is also for a stream that the user named. */
	stream = &s->o->stream;
	return stream->finish && (f->stream || (f->flags & FILE_STREAM))
		       ? stream->finish(stream->ctx)
		       : 0;
}

/* Lock held. */
static void fill_end(const struct source_file *f, struct record_file_end *r)
{
	r->id = f->id;
	r->size = f->size;
	r->data = f->data;
	r->holes = f->holes;
	r->lanes = (uint16_t)__builtin_popcountll(f->announced);
	memcpy(r->digest, f->sum, sizeof r->digest);
	r->code = (uint8_t)(f->failed ? f->failure.code : OUT_DONE);
	r->text[0] = '\0';
	if (f->failed) {
		r->content_len = 0;
		snprintf(r->text, sizeof r->text, "%s", f->failure.text);
	}
}

static void fail_link_id(struct source *s, uint32_t id)
{
	if (s->rules->hard_links)
		links_fail(&s->links, id);
}

/* Lock held. */
static void count_failed(struct source *s, const struct source_file *f)
{
	s->ended.failed++;
	s->agreed.failed++;
	fail_link_id(s, f->id);
	copy_count_failure(s->copy, &f->failure, f->failed_at_peer);
}

/* Lock held. */
static void count_end(struct source *s, const struct source_file *f)
{
	if (f->failed) {
		count_failed(s, f);
		return;
	}
	s->ended.files++;
	s->ended.bytes += f->size;
	sum_add(s->ended.digest, f->sum);
}

/* Lock held; releases it while reporting.  A result may free f meanwhile. */
static void report_file_failure(struct source *s, const struct source_file *f)
{
	static const char nothing[] = "";
	struct failure why = f->failure;
	struct walk_dir *dir = walk_dir_get(f->dir);
	char *shown = strdup(f->shown), name[NAME_ROOM];

	memcpy(name, f->name, sizeof name);
	pthread_mutex_unlock(&s->copy->lock);
	copy_report_failure(s->copy, shown ? shown : nothing, &why);
	source_report_event(s, EVENT_FILE, dir, name, &why);
	walk_dir_put(dir);
	free(shown);
	pthread_mutex_lock(&s->copy->lock);
}

void source_end_file(struct source *s, struct source_file *f, struct record_file_end *r)
{
	int ret;

	*r = (struct record_file_end){0};
	pthread_mutex_lock(&s->copy->lock);
	ret = f->failed ? -1 : 0;
	pthread_mutex_unlock(&s->copy->lock);
	if (ret == 0)
		ret = check_read_file(s, f, r);
	pthread_mutex_lock(&s->copy->lock);
	if (ret && !f->failed) {
		f->failed = true;
		f->failure = *failed();
	}
	if (!f->stream) {
		close_fd(f->fd);
		f->fd = -1;
	}
	fill_end(f, r);
	count_end(s, f);
	f->ended = true;
	if (f->failed_at_peer) {
		s->large.failed_at_peer--;
		ids_settle(&s->ids, f->id);
		finish_source_file(s, f, false);
	} else if (f->failed && !s->only) {
		report_file_failure(s, f);
	}
	pthread_mutex_unlock(&s->copy->lock);
}

void source_count_same(struct source *s, uint32_t id)
{
	ids_set(&s->ids, id, LIVE_SAME);
	s->ended.same++;
	s->agreed.same++;
	atomic_fetch_add(&s->copy->tally->files, 1);
}

void source_mark_same_sent(struct source_lane *l)
{
	struct source *s = l->source;

	if (l->same_unconfirmed || !s->rules->hard_links)
		return;
	l->same_unconfirmed = true;
	s->asides.sames_unconfirmed++;
}

bool source_end_compared(struct source *s, struct source_file *f)
{
	bool same = false, differs = atomic_load(&f->differs);
	int ret = differs ? 0 : source_file_check(f);

	pthread_mutex_lock(&s->copy->lock);
	if (ret && !f->failed) {
		f->failed = true;
		f->failure = *failed();
	}
	if (f->failed) {
		/* The sink has not begun this file, so it needs no FILE_END. */
		count_failed(s, f);
		if (!s->only)
			report_file_failure(s, f);
		ids_settle(&s->ids, f->id);
		finish_source_file(s, f, false);
	} else if (differs) {
		source_requeue_file(s, f);
	} else {
		same = true;
		atomic_fetch_sub(&s->copy->tally->total, f->size);
		source_count_same(s, f->id);
		removal_hold_same(s, f->id, f->removal);
		f->removal = NULL;
		finish_source_file(s, f, false);
	}
	pthread_mutex_unlock(&s->copy->lock);
	return same;
}

/* ---- results ------------------------------------------------------------------------- */

static int fail_unknown_file(void)
{
	return fail_as(OUT_PROTOCOL, "the peer sends a result for an unknown file");
}

static int fail_not_sent(void)
{
	return fail_as(OUT_PROTOCOL, "the peer sends a result for a file that was not sent");
}

static void count_peer_failure(struct source *s, uint32_t id, const struct failure *why)
{
	s->agreed.failed++;
	fail_link_id(s, id);
	copy_count_failure(s->copy, why, true);
}

static int take_file_failure(struct source *s, struct source_file *f, const struct failure *why)
{
	if (f->failed_at_peer || f->compared)
		return fail_not_sent();
	if (!f->ended) {
		f->failed = true;
		f->failed_at_peer = true;
		f->failure = *why;
		s->large.failed_at_peer++;
		/* The lane that has f, or takes it next, sends its FILE_END.  await_source_change()
		 * wakes a lane that is blocked in reading f. */
		atomic_store(&f->stop, true);
		pthread_cond_broadcast(&s->copy->changed);
		return 0;
	}
	/* If it failed here, the sink only acknowledges that. */
	if (!f->failed)
		count_peer_failure(s, f->id, why);
	ids_settle(&s->ids, f->id);
	finish_source_file(s, f, false);
	return 0;
}

/* Failures that belong to no file: deletions, metadata and the like. */
static int take_other_failure(struct source *s, const struct failure *why)
{
	if (!s->copy->end_sent)
		return fail_unknown_file();
	if (why->code == OUT_SOME_FILES)
		copy_count_unkept(s->copy, why, true);
	else
		copy_count_undeleted(s->copy, why, true);
	return 0;
}

static int take_asked_failure(struct source *s, struct aside *a, const struct failure *why)
{
	if (a->answer)
		return fail_not_sent();
	count_peer_failure(s, a->id, why);
	ids_settle(&s->ids, a->id);
	source_end_offer(s, a);
	s->asides.count--;
	aside_free(a);
	pthread_cond_broadcast(&s->copy->changed);
	return 0;
}

static int take_result(struct source *s, const struct msg_file_result *m)
{
	enum live kind = ids_kind(&s->ids, m->file);
	struct live_file *file = ids_file(&s->ids, m->file);
	struct failure why = {.code = outcome_from(m->code)};

	snprintf(why.text, sizeof why.text, "%s", m->text);
	if (m->file == 0)
		return take_other_failure(s, &why);
	switch (kind) {
	case LIVE_FILE:
		return take_file_failure(s, file->object, &why);
	case LIVE_ASKED:
		return take_asked_failure(s, file->object, &why);
	case LIVE_DIR:
		s->agreed.others--;
		break;
	case LIVE_SAME:
		s->agreed.same--;
		break;
	case LIVE_SMALL:
	case LIVE_OTHER:
		removal_free(file->object);
		s->unfinished--;
		break;
	case LIVE_NONE:
	case LIVE_TAKEN:
		return fail_unknown_file();
	}
	count_peer_failure(s, m->file, &why);
	ids_settle(&s->ids, m->file);
	pthread_cond_broadcast(&s->copy->changed);
	return 0;
}

static int take_file_stored(struct source *s, struct source_file *f)
{
	if (!f->ended || f->failed)
		return fail_not_sent();
	s->agreed.files++;
	s->agreed.bytes += f->size;
	sum_add(s->agreed.digest, f->sum);
	finish_source_file(s, f, true);
	return 0;
}

static int take_one_stored(struct source *s, uint32_t id)
{
	enum live kind = ids_kind(&s->ids, id);
	struct live_file *file = ids_file(&s->ids, id);

	if (kind == LIVE_FILE) {
		if (take_file_stored(s, file->object))
			return -1;
	} else if (kind == LIVE_SMALL || kind == LIVE_OTHER) {
		removal_queue(s, file->object);
		s->unfinished--;
		s->agreed.files += kind == LIVE_SMALL;
		s->agreed.others += kind == LIVE_OTHER;
	} else {
		return fail_unknown_file();
	}
	if (kind == LIVE_SMALL) {
		s->agreed.bytes += file->size;
		sum_add(s->agreed.digest, file->sum);
	}
	ids_settle(&s->ids, id);
	return 0;
}

static int take_stored(struct source *s, const struct msg_stored *m)
{
	for (unsigned i = 0; i < m->count; i++) {
		if (take_one_stored(s, m->files[i]))
			return -1;
	}
	atomic_fetch_add(&s->copy->tally->files, m->count);
	pthread_cond_broadcast(&s->copy->changed);
	return 0;
}

int source_check_totals(struct source *s)
{
	const struct msg_total *theirs = &s->copy->total, *ours = &s->agreed;

	if (theirs->files != ours->files || theirs->same != ours->same ||
	    theirs->others != ours->others || theirs->failed != ours->failed ||
	    theirs->bytes != ours->bytes || theirs->digest[0] != ours->digest[0] ||
	    theirs->digest[1] != ours->digest[1] || s->unfinished > 0)
		return fail_as(OUT_INTEGRITY, "the sink's totals differ from what was sent");
	return 0;
}

/* ---- frames ---------------------------------------------------------------------------- */

/* What the sink reports of files.  Lock held. */
static int take_file_frame(struct source *s, const struct frame *f)
{
	union {
		struct msg_file_result result;
		struct msg_stored stored;
		struct msg_answers answers;
		struct msg_cells cells;
	} m;

	switch (f->type) {
	case MSG_FILE_RESULT:
		return msg_file_result_decode(f, &m.result) ? -1 : take_result(s, &m.result);
	case MSG_STORED:
		return msg_stored_decode(f, &m.stored) ? -1 : take_stored(s, &m.stored);
	case MSG_ANSWERS:
		return msg_answers_decode(f, &m.answers) ? -1 : source_take_answers(s, &m.answers);
	case MSG_CELLS:
		return msg_cells_decode(f, &m.cells) ? -1 : source_take_cells(s, &m.cells);
	default:
		return copy_fail_unexpected(f);
	}
}

static int on_done(struct copy *c, const struct frame *f)
{
	struct session *session = NULL;
	struct msg_total total;

	if (msg_total_decode(f, &total))
		return -1;
	pthread_mutex_lock(&c->lock);
	if (c->end_sent && !c->done_received) {
		session = c->session;
		c->total = total;
		c->done_received = true;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	if (!session)
		return fail_as(OUT_PROTOCOL, "unexpected DONE from the peer");
	/* At once, because the sink closes the connection when it has sent DONE. */
	session_ended(session);
	return 0;
}

static int on_source_frame(struct copy *c, const struct frame *f)
{
	int ret;

	if (f->type == MSG_DONE)
		return on_done(c, f);
	pthread_mutex_lock(&c->lock);
	ret = c->running ? take_file_frame(c->running, f) : copy_fail_unexpected(f);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

const struct copy_role source_role = {.role = ROLE_SOURCE, .on_frame = on_source_frame};
