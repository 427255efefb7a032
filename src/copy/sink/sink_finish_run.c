/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"

/* ---- END ------------------------------------------------------------------------------ */

static uint64_t sum_files(const struct msg_total *t)
{
	return t->files + t->same + t->others + t->failed;
}

/* Counts files that failed here when they were asked about, which END does not count.  Lock held.
 */
static uint64_t count_refused(const struct sink *s)
{
	return sum_files(&s->sums.stored) - sum_files(&s->sums.ended);
}

/* Is there a file or a failure for each requested source?  Not needed if the source may leave some
 * out. */
static bool covers_all_wants(const struct sink *s, const struct msg_total *m)
{
	const struct rules *r = s->rules;
	/* Several paths may lead to one file, which is sent once. */
	uint64_t asked = s->o->count && !r->relative ? s->o->count : 1;

	if (r->filter || r->listed || r->min_size > 0 || r->max_size != UINT64_MAX)
		return true;
	return m->failed >= asked ||
	       m->files + m->same + m->others + count_refused(s) >= asked - m->failed;
}

static bool totals_agree(const struct msg_total *theirs, const struct msg_total *ours)
{
	return theirs->files == ours->files && theirs->same == ours->same &&
	       theirs->others == ours->others && theirs->failed >= ours->failed &&
	       theirs->bytes == ours->bytes && theirs->digest[0] == ours->digest[0] &&
	       theirs->digest[1] == ours->digest[1];
}

/* Has the source sent everything, and is all of that stored?  Lock held. */
static int check_total(struct sink *s)
{
	const struct msg_total *theirs = &s->copy->total, *ours = &s->sums.ended;

	if (s->busy_lanes > 0)
		return fail_as(OUT_PROTOCOL, "the peer sent END before its blocks were stored");
	if (s->count > 0)
		return fail_as(OUT_PROTOCOL, "the peer sent END with %u files unfinished",
			       s->count);
	if (!totals_agree(theirs, ours))
		return fail_as(OUT_PROTOCOL,
			       "the totals in the peer's END differ from what it sent");
	if (!covers_all_wants(s, theirs))
		return fail_as(OUT_PROTOCOL, "the peer sent END before all requested files");
	/* Add those that failed at the source before they were announced. */
	s->sums.stored.failed += theirs->failed - ours->failed;
	return 0;
}

/* ---- deletions, and metadata of directories ------------------------------------------- */

struct completion {
	struct sink *sink;
	int send_ret; /* of sending results */
};

/* Reports a failed deletion to the source.  It belongs to no file of the source. */
static void send_undeleted(struct completion *n, const struct failure *why)
{
	struct copy *c = n->sink->copy;

	pthread_mutex_lock(&c->lock);
	copy_count_undeleted(c, why, false);
	pthread_mutex_unlock(&c->lock);
	if (n->send_ret == 0)
		n->send_ret = sink_send_result(n->sink, 0, why);
}

static void on_deleted(void *ctx, enum event_what what, const char *path, const struct failure *why)
{
	struct completion *n = ctx;
	struct failure f;

	atomic_fetch_add(&n->sink->copy->tally->removed, 1);
	if (!why) {
		sink_report_deleted(n->sink, what, path, NULL);
		return;
	}
	f = *why;
	copy_report_failure(n->sink->copy, path, &f);
	sink_report_deleted(n->sink, what, path, &f);
	send_undeleted(n, &f);
}

/* The directory was made, but its metadata could not be set. */
static void on_dir_failed(void *ctx, uint32_t id, const struct failure *why)
{
	struct completion *n = ctx;
	struct sink *s = n->sink;
	struct msg_event e = {.what = EVENT_DIR, .code = (uint8_t)why->code};
	struct failure f = *why;
	struct sink_dir *d;
	char *path = s->lanes[0].mail->path;

	pthread_mutex_lock(&s->copy->lock);
	d = sink_dir_find(s, id);
	if (d && d->state == SINK_OPEN) {
		d->state = SINK_FAILED;
		s->sums.stored.others--;
		s->sums.stored.failed++;
		copy_count_failure(s->copy, &f, false);
	} else {
		d = NULL;
	}
	pthread_mutex_unlock(&s->copy->lock);
	if (!d)
		return;
	e.path_len = (uint16_t)sink_path(d, "", path, sizeof s->lanes[0].mail->path);
	e.path = path;
	copy_report_failure(s->copy, path, &f);
	if (s->rules->events)
		copy_report_event(s->copy, &e);
	if (n->send_ret == 0)
		n->send_ret = sink_send_result(s, id, &f);
}

static bool is_name_asked(void *ctx, const char *name)
{
	return sink_wants_name(((struct completion *)ctx)->sink, name);
}

/* Nothing is deleted unless all of the source was read and stored. */
static bool may_delete(const struct sink *s)
{
	const struct msg_total *theirs = &s->copy->total;
	uint64_t failed = s->sums.stored.failed;

	if (!s->rules->delete)
		return false;
	/* The source reports whether any of its failures forbids deletions.  It also counts a file
	 * that failed here while it was sent. */
	if (!theirs->incomplete && s->copy->failed_here == 0 && failed == theirs->failed)
		return true;
	if (failed > 0)
		log_warn("%llu file%s failed: nothing is deleted", (unsigned long long)failed,
			 failed == 1 ? "" : "s");
	else
		log_warn("the source is not complete: nothing is deleted");
	return false;
}

/* Reports to the source how many things were stored without some of their metadata. */
static void send_unkept(struct completion *n)
{
	struct sink *s = n->sink;
	struct failure why;

	s->sums.counts.unkept = atomic_load(&s->unkept);
	if (s->sums.counts.unkept == 0)
		return;
	/* rdrecv prints nothing else about its one file. */
	if (s->o->single_stream)
		fail_as(OUT_SOME_FILES, "metadata of the file could not be kept: %s",
			s->first_unkept.text);
	else
		fail_as(OUT_SOME_FILES, "metadata of %llu file%s could not be kept",
			(unsigned long long)s->sums.counts.unkept,
			s->sums.counts.unkept == 1 ? "" : "s");
	why = *failed();
	pthread_mutex_lock(&s->copy->lock);
	copy_count_unkept(s->copy, &why, false);
	pthread_mutex_unlock(&s->copy->lock);
	if (n->send_ret == 0)
		n->send_ret = sink_send_result(s, 0, &why);
}

static int complete_place(struct sink *s)
{
	struct completion n = {.sink = s};
	struct place_finish end = {
		.is_asked = is_name_asked,
		.on_deleted = on_deleted,
		.on_dir = on_dir_failed,
		.ctx = &n,
	};

	if (sink_dirs_give_xattrs(s))
		return -1;
	end.deletions = may_delete(s);
	if (place_finish_run(s->place, &end))
		return -1;
	s->sums.counts.deleted = end.deleted;
	if (end.too_many) {
		struct failure why;

		fail_as(OUT_MAX_DELETE, "--max-delete=%llu was reached: more would be deleted",
			(unsigned long long)s->rules->max_delete);
		why = *failed();
		send_undeleted(&n, &why);
	}
	send_unkept(&n);
	return n.send_ret;
}

/* ---- DONE ----------------------------------------------------------------------------- */

static int send_done(struct sink *s, uint64_t end_ns)
{
	uint8_t body[sizeof(struct msg_total) + 16];
	struct msg_times *times = &s->copy->result->times;
	struct writer w = writer_of(body, sizeof body);

	pthread_mutex_lock(&s->copy->lock);
	if (s->place && s->rules->delete)
		s->sums.stored.target = place_identity(s->place);
	s->copy->result->total = s->sums.stored;
	msg_total_encode(&w, &s->sums.stored);
	pthread_mutex_unlock(&s->copy->lock);
	sink_times(s, clock_ns() - end_ns, times);
	if (copy_send_times(s->copy, times))
		return -1;
	/* Before DONE is sent, because the source closes the connection as soon as it has it. */
	session_ended(s->session);
	atomic_store(&s->copy->done_sent, true);
	if (sink_send(s, MSG_DONE, &w))
		return -1;
	/* The connection may be cut just now: closed, it would answer what the peer sends next with
	 * a reset, and without DONE the source fails. */
	session_deliver(s->session);
	return 0;
}

int sink_finish_run(struct sink *s)
{
	uint64_t end_ns = clock_ns();
	bool only;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	only = s->only_failed; /* as walk_is_one_file() decides at the source */
	ret = check_total(s);
	pthread_mutex_unlock(&s->copy->lock);
	if (ret)
		return -1;
	sink_forget_asked(s);
	sink_dirs_report_failed(s);
	if ((s->place && complete_place(s)) || send_done(s, end_ns))
		return -1;
	return only ? 1 : 0;
}
