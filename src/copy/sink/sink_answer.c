/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/content_digest.h"
#include "lane/fault.h"

/* ---- the question --------------------------------------------------------------------- */

int sink_take_question(struct sink_lane *l, const struct record_file *r)
{
	struct sink *s = l->sink;
	struct sink_question *q = &l->question;
	bool known;

	if (sink_require_dir(l, r->dir, &q->dir) || sink_accept_file(s, r, q->dir))
		return -1;
	pthread_mutex_lock(&s->copy->lock);
	known = *sink_file_slot(s, r->id) || sink_dir_find(s, r->id);
	pthread_mutex_unlock(&s->copy->lock);
	if (known)
		return fail_as(OUT_PROTOCOL, "the peer asks about file %u twice", r->id);
	q->open = true;
	q->r = *r;
	q->xattr_bytes = 0;
	return 0;
}

int sink_add_xattr(struct sink_lane *l, const struct record_xattr *r)
{
	struct sink_question *q = &l->question;

	q->xattr_bytes += r->pos > 0 ? 0 : strlen(r->name) + r->size;
	return xattrs_add(&q->xattrs, r);
}

/* ---- failures ------------------------------------------------------------------------- */

/* Answers with this thread's failure. */
static int answer_with_failure(struct sink_lane *l, const struct record_file *r, struct sink_dir *d)
{
	if (sink_report_failed(l, r->id, EVENT_FILE, d, r->name, r->flags & FILE_MANY))
		return -1;
	l->sums.any = true;
	l->sums.stored.failed++;
	l->sums.counts.regular++;
	return 0;
}

/* ---- files that wait for FILE or SAME -------------------------------------------------- */

/* Lock held. */
static bool has_room_for_asked(const struct sink *s, const struct sink_question *q, bool resumed,
			       bool cloned)
{
	if (resumed)
		return s->resumed < (unsigned)(cloned ? SINK_CLONED_MAX : SINK_RESUMED_MAX);
	return s->compared < SINK_COMPARED_MAX &&
	       s->asked_xattr_bytes + q->xattr_bytes <= fault_bound(SINK_ASKED_XATTRS_MAX);
}

/* Keeps what was asked about.  NULL: the limit is reached or memory is out, so the answer is SEND.
 */
static struct sink_file *add_asked(struct sink *s, struct sink_question *q, bool resumed,
				   bool cloned)
{
	struct sink_file *f = calloc(1, sizeof *f);
	struct sink_file **slot;

	if (!f)
		return NULL;
	f->r = q->r;
	f->dir = q->dir;
	f->state = SINK_ASKED;
	f->resumed = resumed;
	f->cloned = cloned;
	f->xattr_bytes = resumed ? 0 : q->xattr_bytes;
	pthread_mutex_lock(&s->copy->lock);
	slot = sink_file_slot(s, f->r.id);
	if (*slot || !has_room_for_asked(s, q, f->resumed, cloned)) {
		pthread_mutex_unlock(&s->copy->lock);
		free(f);
		return NULL;
	}
	*(f->resumed ? &s->resumed : &s->compared) += 1;
	s->asked_xattr_bytes += f->xattr_bytes;
	*slot = f;
	pthread_mutex_unlock(&s->copy->lock);
	return f;
}

void sink_remove_asked(struct sink *s, struct sink_file *f)
{
	*sink_file_slot(s, f->r.id) = f->next;
	f->next = NULL;
	*(f->resumed ? &s->resumed : &s->compared) -= 1;
	s->asked_xattr_bytes -= f->xattr_bytes;
	f->xattr_bytes = 0;
}

/* Drops what was kept: the file will be sent as if it had not been asked about. */
static void drop_asked(struct sink *s, struct sink_file *f, bool keep)
{
	pthread_mutex_lock(&s->copy->lock);
	sink_remove_asked(s, f);
	pthread_mutex_unlock(&s->copy->lock);
	if (f->placement)
		place_drop(f->placement, keep);
	sink_file_free(f);
}

/* Sends the answer, when everything that the FILE needs is ready. */
static int answer_asked(struct sink_lane *l, struct sink_file *f)
{
	struct sink *s = l->sink;
	uint32_t id = f->r.id;
	enum answer answer = f->cloned    ? ANSWER_CLONED
			     : f->resumed ? ANSWER_RESUME
					  : ANSWER_COMPARE;

	pthread_mutex_lock(&s->copy->lock);
	f->state = f->resumed ? SINK_RESUMED : SINK_COMPARED;
	pthread_mutex_unlock(&s->copy->lock);
	return sink_queue_answer(l, id, answer);
}

/* Clones the source's file.  1: that is not possible. */
static int answer_with_clone(struct sink_lane *l, struct sink_question *q, int from)
{
	struct sink *s = l->sink;
	struct sink_file *f;

	if (from < 0 || s->rules->inplace || s->rules->sparse || s->rules->verify ||
	    !(f = add_asked(s, q, true, true)))
		return 1;
	if (place_clone(s->place, sink_dir_place(q->dir), &q->r, from, &s->clones, &f->placement)) {
		drop_asked(s, f, false);
		return 1;
	}
	return answer_asked(l, f);
}

static int answer_with_resume(struct sink_lane *l, struct sink_question *q)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	bool had = false;
	int ret = 0;

	if (q->r.size < SINK_RESUME_MIN || s->rules->inplace || !(f = add_asked(s, q, true, false)))
		return sink_queue_answer(l, q->r.id, ANSWER_SEND);
	if (place_resume(s->place, sink_dir_place(q->dir), &q->r, &f->placement, &had)) {
		drop_asked(s, f, false);
		return answer_with_failure(l, &q->r, q->dir);
	}
	if (had)
		ret = sink_send_cells(l, q, placement_fd(f->placement), &f->cells);
	if (ret == 0 && f->cells)
		return answer_asked(l, f);
	drop_asked(s, f, ret < 0);
	return ret < 0 ? -1 : sink_queue_answer(l, q->r.id, ANSWER_SEND);
}

static int answer_with_compare(struct sink_lane *l, struct sink_question *q)
{
	struct sink *s = l->sink;
	struct sink_file *f = NULL;
	struct stat st;
	int fd, ret;

	/* A target that cannot be read is replaced. */
	if (place_open_existing(s->place, sink_dir_place(q->dir), &q->r, &fd))
		return sink_queue_answer(l, q->r.id, ANSWER_SEND);
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size == q->r.size)
		f = add_asked(s, q, false, false);
	if (!f) {
		close_fd(fd);
		return sink_queue_answer(l, q->r.id, ANSWER_SEND);
	}
	f->xattrs = q->xattrs;
	q->xattrs = NULL;
	ret = sink_send_cells(l, q, fd, NULL);
	close_fd(fd);
	if (ret == 0)
		return answer_asked(l, f);
	drop_asked(s, f, false);
	if (ret < 0)
		return -1;
	/* Some cells were sent and may be wrong, so the file must not be compared with them. */
	return answer_with_failure(l, &q->r, q->dir);
}

/* ---- answers -------------------------------------------------------------------------- */

/* For --print-digest, which also prints the digest of a file that is not sent. */
static int digest_target(struct sink_lane *l, const struct record_file *r, struct sink_dir *d,
			 char to[static EVENT_DIGEST])
{
	struct sink *s = l->sink;
	struct stopper stopper = {.stop = copy_stopped, .ctx = s->copy};
	uint8_t digest[CONTENT_DIGEST_MAX];
	char shown[SHOWN_ROOM];
	int fd, ret;

	to[0] = '\0';
	if (!s->rules->digest || s->rules->dry_run)
		return 0;
	if (place_open_existing(s->place, sink_dir_place(d), r, &fd))
		return fail("open %s: %m", sink_name_shown(s, d, r->name, shown));
	sink_name_shown(s, d, r->name, shown);
	ret = content_digest_of(fd, shown, 0, r->size, s->rules->digest, &stopper, digest);
	close_fd(fd);
	if (ret == 0)
		content_digest_text(s->rules->digest, digest, to);
	return ret;
}

static void count_same(struct sink_lane *l, bool good)
{
	l->sums.any = true;
	l->sums.ended.same++;
	l->sums.stored.same += good;
	l->sums.stored.failed += !good;
	l->sums.counts.regular++;
	l->sums.files += good;
}

/* The target has the file already.  update: its metadata is brought up to date; else it is left
 * alone. */
static int accept_same_file(struct sink_lane *l, const struct record_file *r, struct sink_dir *d,
			    const struct xattrs *x, const struct change *c, bool update)
{
	struct sink *s = l->sink;
	struct change none = {.what = EVENT_FILE};
	char digest[EVENT_DIGEST];

	if (update && place_update_metadata(s->place, sink_dir_place(d), r, x))
		return -1;
	/* A target that is left alone may have any content, so its digest is not printed. */
	digest[0] = '\0';
	if (update && digest_target(l, r, d, digest))
		return -1;
	sink_report_event(l, d, r->name, update ? c : &none, false, r->size, digest);
	return 0;
}

/* What the rules require for the existing target. */
enum decision { DECIDE_SEND, DECIDE_SAME, DECIDE_LEAVE, DECIDE_COMPARE };

static enum decision decide_answer(const struct rules *rules, const struct record_file *r,
				   const struct looked *k)
{
	if ((rules->ignore_existing && !k->change.missing) || (rules->existing && k->absent))
		return DECIDE_LEAVE;
	if (rules->update && k->look != LOOK_MISSING && k->newer)
		return DECIDE_LEAVE;
	if (rules->hide_contents && (rules->checksum || rules->digest))
		return DECIDE_SEND;
	if (rules->checksum && k->look != LOOK_MISSING && k->same_size)
		return r->size > 0 ? DECIDE_COMPARE : DECIDE_SAME;
	if (rules->quick && !rules->checksum && k->look == LOOK_QUICK)
		return DECIDE_SAME;
	return DECIDE_SEND;
}

/* --dry-run: reports what would be done. */
static int answer_rehearsal(struct sink_lane *l, struct sink_question *q, const struct looked *k,
			    enum decision decision)
{
	struct change change = k->change;
	bool send = decision == DECIDE_SEND;

	change.content = send && l->sink->rules->checksum && !change.missing && !change.type;
	if (decision == DECIDE_LEAVE)
		change = (struct change){.what = EVENT_FILE};
	/* If the file has more names, the place must know of it to report them, too. */
	if (send ? place_rehearse(l->sink->place, sink_dir_place(q->dir), &q->r)
	    : decision == DECIDE_SAME && (q->r.flags & FILE_LINKED)
		    ? place_update_metadata(l->sink->place, sink_dir_place(q->dir), &q->r, NULL)
		    : 0)
		return answer_with_failure(l, &q->r, q->dir);
	l->sums.counts.created += send && k->change.missing;
	sink_report_event(l, q->dir, q->r.name, &change, send, q->r.size, "");
	count_same(l, true);
	return sink_queue_answer(l, q->r.id, ANSWER_SAME);
}

/* offered: the source's descriptor for a clone; -1: none. */
static int answer_question(struct sink_lane *l, struct sink_question *q, int offered)
{
	struct sink *s = l->sink;
	enum decision decision;
	struct looked k;
	int ret;

	/* A stream has no content to compare, and with --dry-run it gets none. */
	if (!s->place && !s->rules->dry_run)
		return sink_queue_answer(l, q->r.id, ANSWER_SEND);
	if (!s->place || sink_dir_is_left_out(q->dir)) {
		count_same(l, true);
		return sink_queue_answer(l, q->r.id, ANSWER_SAME);
	}
	if (sink_take_file_xattrs(s, &q->r, q->xattrs, q->dir) ||
	    sink_dir_check(s, q->dir, q->r.name) ||
	    place_look(s->place, sink_dir_place(q->dir), &q->r, q->xattrs, &k))
		return answer_with_failure(l, &q->r, q->dir);
	k.change.what = EVENT_FILE;
	decision = decide_answer(s->rules, &q->r, &k);
	if ((q->r.flags & FILE_MAY) && decision != DECIDE_LEAVE)
		return sink_queue_answer(l, q->r.id, ANSWER_SEND);
	if (s->rules->dry_run && decision != DECIDE_COMPARE)
		return answer_rehearsal(l, q, &k, decision);
	switch (decision) {
	case DECIDE_SEND:
		ret = answer_with_clone(l, q, offered);
		return ret > 0 ? answer_with_resume(l, q) : ret;
	case DECIDE_COMPARE:
		return answer_with_compare(l, q);
	case DECIDE_SAME:
	case DECIDE_LEAVE:
		if (accept_same_file(l, &q->r, q->dir, q->xattrs, &k.change,
				     decision == DECIDE_SAME))
			return answer_with_failure(l, &q->r, q->dir);
		count_same(l, true);
		return sink_queue_answer(l, q->r.id, ANSWER_SAME);
	}
	return -1;
}

int sink_answer(struct sink_lane *l)
{
	struct sink_question *q = &l->question;
	int offered = clones_take(&l->sink->clones, q->r.id);
	int ret = answer_question(l, q, offered);

	close_fd(offered);
	xattrs_free(q->xattrs);
	q->xattrs = NULL;
	q->open = false;
	return ret;
}

/* ---- SAME ----------------------------------------------------------------------------- */

/* Examines the target again: it may have changed since it was compared. */
static int recheck_change(struct sink *s, const struct sink_file *f, struct change *out)
{
	struct looked k;

	if (place_look(s->place, sink_dir_place(f->dir), &f->r, f->xattrs, &k))
		return -1;
	if (k.look == LOOK_MISSING || !k.same_size)
		return fail("update %s: it changed after it was compared", f->r.name);
	*out = k.change;
	out->content = false;
	return 0;
}

int sink_take_same(struct sink_lane *l, const struct record_same *r)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	struct change change;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	f = *sink_file_slot(s, r->id);
	if (f && f->state == SINK_COMPARED)
		sink_remove_asked(s, f);
	else
		f = NULL;
	pthread_mutex_unlock(&s->copy->lock);
	if (!f)
		return fail_as(OUT_PROTOCOL,
			       "the peer sends SAME for file %u, which this end did not compare",
			       r->id);
	ret = recheck_change(s, f, &change) ||
			      accept_same_file(l, &f->r, f->dir, f->xattrs, &change, true)
		      ? -1
		      : 0;
	count_same(l, ret == 0);
	if (ret)
		ret = sink_report_failed(l, r->id, EVENT_FILE, f->dir, f->r.name,
					 f->r.flags & FILE_MANY);
	sink_file_free(f);
	return ret;
}

void sink_forget_asked(struct sink *s)
{
	struct sink_file *f;

	for (unsigned i = 0; i < SINK_BUCKETS; i++) {
		while ((f = s->files[i]) != NULL) {
			if (f->placement)
				place_drop(f->placement, false);
			sink_remove_asked(s, f);
			sink_file_free(f);
		}
	}
}
