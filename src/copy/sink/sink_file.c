/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/log.h"
#include "base/memory.h"

enum { DIRECT_PART = 4 }; /* --direct=auto: a file of a quarter of memory bypasses the page cache */

struct sink_file **sink_file_slot(struct sink *s, uint32_t id)
{
	struct sink_file **at = &s->files[id % SINK_BUCKETS];

	while (*at && (*at)->r.id != id)
		at = &(*at)->next;
	return at;
}

const char *sink_shown(const struct sink_file *f)
{
	return f->placement  ? placement_name(f->placement)
	       : f->out.name ? f->out.name
	       : f->shown    ? f->shown
			     : f->r.name;
}

void sink_file_free(struct sink_file *f)
{
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++)
		digest_free(f->partial[i]);
	digest_free(f->digest);
	direct_close(f->out.direct);
	xattrs_free(f->xattrs);
	sent_cells_free(f->cells);
	free(f->symlink_target);
	free(f->shown);
	free(f);
}

int sink_fail_file(struct sink_lane *l, struct sink_file *f)
{
	struct sink *s = l->sink;
	bool first;

	if (copy_interrupted(s->copy) || failed()->code == OUT_PROTOCOL)
		return -1;
	pthread_mutex_lock(&s->copy->lock);
	first = !f->failure_reported;
	f->failure_reported = true;
	f->state = SINK_FAILED;
	sink_wake(s, f);
	pthread_mutex_unlock(&s->copy->lock);
	if (!first)
		return 0;
	return sink_report_failed(l, f->r.id, sink_event_what(f->r.type), f->dir, f->r.name,
				  f->r.flags & FILE_MANY);
}

/* ---- beginning ----------------------------------------------------------------------- */

/* The file has no descriptor: a symlink's target is collected, all other bytes are dropped. */
static int begin_without_placement(struct sink_file *f)
{
	f->out = (struct outlet){.fd = -1, .seekable = true};
	if (f->r.type != TYPE_SYMLINK)
		return 0;
	f->symlink_target = calloc(1, (size_t)f->r.size + 1);
	return f->symlink_target ? 0 : fail_as(OUT_MEMORY, "create %s: %m", sink_shown(f));
}

/* Does --existing leave out this file of unknown size?  Other files were asked about. */
static int check_stream_left_out(const struct sink *s, const struct sink_file *f, bool *left_out)
{
	struct looked k;

	*left_out = false;
	if (!s->rules->existing || !(f->r.flags & FILE_STREAM) || sink_dir_is_left_out(f->dir))
		return 0;
	if (place_look(s->place, sink_dir_place(f->dir), &f->r, NULL, &k))
		return -1;
	*left_out = k.absent;
	return 0;
}

static int begin_with_placement(struct sink *s, struct sink_file *f)
{
	if (sink_dir_check(s, f->dir, f->r.name) || check_stream_left_out(s, f, &f->left_out))
		return -1;
	/* With --dry-run, and for what is left out, the bytes are dropped. */
	if (f->r.type != TYPE_REGULAR || s->rules->dry_run || f->left_out ||
	    sink_dir_is_left_out(f->dir))
		return begin_without_placement(f);
	if (!f->placement && place_begin(s->place, sink_dir_place(f->dir), &f->r, &f->placement))
		return -1;
	return placement_outlet(f->placement, placement_name(f->placement), &f->out);
}

/*
 * Through the page cache or past it?  If the copy fits the cache, it ends sooner through it, with
 * --fsync as well: the cache keeps more writes in flight than lanes that each wait for their own.
 * A larger file would evict everything else and then wait for the disk all the same, so it
 * bypasses the cache.
 */
static void choose_cache_use(struct sink *s, struct sink_file *f)
{
	enum direct direct = s->o->direct;
	bool large = f->r.size >= DIRECT_MIN && f->r.size >= memory_bytes() / DIRECT_PART;

	if (f->cloned || f->out.fd < 0 || !f->out.seekable || !writeback_suits(f->out.fd))
		return;
	f->out.writeback = &s->writeback;
	if (direct == DIRECT_ON || (direct == DIRECT_AUTO && large && direct_suits(f->out.fd))) {
		f->out.direct = direct_open(f->out.fd, O_WRONLY);
		if (!f->out.direct && direct == DIRECT_ON)
			direct_warn_missed(&s->direct_missed, f->out.name);
	}
	log_debug("writing %s %s the page cache", f->out.name, f->out.direct ? "past" : "through");
}

static int open_stream(struct sink *s, struct sink_file *f)
{
	if (outlet_of(s->o->stream.fd, s->o->stream.name, &f->out))
		return -1;
	f->out.passed = s->o->stream.passed;
	return 0;
}

static int open_outlet(struct sink *s, struct sink_file *f)
{
	if (s->place)
		return begin_with_placement(s, f);
	if (!s->o->discard)
		return open_stream(s, f);
	f->out = (struct outlet){.fd = -1, .seekable = true};
	return 0;
}

static int begin_sink_file(struct sink *s, struct sink_file *f)
{
	if (open_outlet(s, f))
		return -1;
	if (f->out.fd >= 0 && !f->out.sized)
		atomic_store(&s->kind, (int)stage_kind_of(f->out.fd));
	choose_cache_use(s, f);
	/* Of other outputs it is checked that they reach the last byte that arrived. */
	f->out.sparse = s->rules->sparse && f->out.sized;
	f->out.stopper = (struct stopper){.stop = copy_stopped, .ctx = s->copy};
	f->ordered = (f->r.flags & (FILE_STREAM | FILE_ORDERED)) || !f->out.seekable;
	if (!f->ordered)
		return 0;
	f->digest = digest_new();
	if (!f->digest)
		return -1;
	if (s->rules->verify)
		digest_track_nonzero(f->digest);
	return 0;
}

/* The atime may differ between lanes, because reading changes it. */
static bool is_same_record(const struct record_file *a, const struct record_file *b)
{
	return a->want == b->want && a->dir == b->dir && a->flags == b->flags &&
	       a->type == b->type && a->size == b->size && a->a.mode == b->a.mode &&
	       a->a.uid == b->a.uid && a->a.gid == b->a.gid && a->a.mtime_s == b->a.mtime_s &&
	       a->a.mtime_ns == b->a.mtime_ns && a->major == b->major && a->minor == b->minor &&
	       a->link_to == b->link_to && strcmp(a->name, b->name) == 0;
}

/* Lock held. */
static int reannounce_file(struct sink_lane *l, struct sink_file *f, const struct record_file *r)
{
	if ((f->announced & sink_lane_bit(l)) || !is_same_record(&f->r, r))
		return fail_as(OUT_PROTOCOL, "the peer announces file %u twice", r->id);
	f->announced |= sink_lane_bit(l);
	/* No lane may finish the file while this one waits for it. */
	f->busy++;
	while (f->state == SINK_OPENING && !atomic_load(&l->sink->copy->failed))
		sink_wait(l, f, 0);
	return 0;
}

/* Lock held. */
static int announce_file(struct sink_lane *l, struct sink_file *f)
{
	struct sink *s = l->sink;

	if (s->count >= SINK_OPEN_MAX)
		return fail_as(OUT_PROTOCOL, "the peer has more than %d files open", SINK_OPEN_MAX);
	if (!s->place && s->stream_taken)
		return fail_as(OUT_PROTOCOL, "the peer sends a second file into a stream");
	if (sink_dir_find(s, f->r.id))
		return fail_as(OUT_PROTOCOL, "the peer sends a file with the id of a directory");
	s->stream_taken = true;
	f->announced = sink_lane_bit(l);
	f->busy = 1;
	f->state = SINK_OPENING;
	*sink_file_slot(s, f->r.id) = f;
	s->count++;
	return 0;
}

static bool was_asked(const struct sink_file *f)
{
	return f && (f->state == SINK_RESUMED || f->state == SINK_COMPARED);
}

static int begin_announced(struct sink_lane *l, struct sink_file *f)
{
	struct sink *s = l->sink;
	int ret = begin_sink_file(s, f);

	pthread_mutex_lock(&s->copy->lock);
	f->state = ret ? SINK_FAILED : SINK_OPEN;
	sink_wake(s, f);
	pthread_mutex_unlock(&s->copy->lock);
	return ret ? sink_fail_file(l, f) : 0;
}

/* The FILE of a question has arrived.  What was prepared for it is used only if the record is still
 * the same. */
static void adopt_asked(struct sink_file *f, struct sink_file *asked)
{
	enum { MAY_CHANGE = FILE_ASK | FILE_SPARSE };
	struct record_file r = asked->r;

	r.flags = (r.flags & ~(uint32_t)MAY_CHANGE) | (f->r.flags & MAY_CHANGE);
	if (asked->placement && is_same_record(&r, &f->r)) {
		f->placement = asked->placement;
		f->cells = asked->cells;
		f->cloned = asked->cloned;
		asked->cells = NULL;
	} else if (asked->placement) {
		place_drop(asked->placement, false);
	}
	sink_file_free(asked);
}

/* 1: another lane has announced it. */
static int enter_sink_file(struct sink_lane *l, struct sink_file *f)
{
	struct sink *s = l->sink;
	struct sink_file *asked;
	int ret = 1;

	pthread_mutex_lock(&s->copy->lock);
	asked = *sink_file_slot(s, f->r.id);
	if (!asked || was_asked(asked)) {
		if (asked)
			sink_remove_asked(s, asked);
		ret = announce_file(l, f);
	} else {
		asked = NULL;
	}
	pthread_mutex_unlock(&s->copy->lock);
	if (asked)
		adopt_asked(f, asked);
	return ret;
}

static int take_new_file(struct sink_lane *l, const struct record_file *r)
{
	char shown[SHOWN_ROOM];
	struct sink_file *f;
	struct sink_dir *dir;
	int ret;

	if (sink_require_dir(l, r->dir, &dir) || sink_accept_file(l->sink, r, dir))
		return -1;
	sink_name_shown(l->sink, dir, r->name, shown);
	f = calloc(1, sizeof *f);
	if (!f || !(f->shown = strdup(shown))) {
		free(f);
		return fail_as(OUT_MEMORY, "create %s: %m",
			       l->sink->place ? shown : l->sink->o->stream.name);
	}
	f->r = *r;
	f->dir = dir;
	ret = enter_sink_file(l, f);
	if (ret) {
		if (f->placement)
			place_drop(f->placement, false);
		sink_file_free(f);
		return ret;
	}
	return begin_announced(l, f) ? -1 : sink_release_file(l, f);
}

int sink_take_file(struct sink_lane *l, const struct record_file *r)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	int ret = 1;

	while (ret > 0) {
		pthread_mutex_lock(&s->copy->lock);
		f = *sink_file_slot(s, r->id);
		if (f && !was_asked(f))
			ret = reannounce_file(l, f, r);
		pthread_mutex_unlock(&s->copy->lock);
		if (ret == 0)
			return sink_release_file(l, f);
		if (ret > 0)
			ret = take_new_file(l, r);
	}
	return ret;
}

/* ---- attributes ----------------------------------------------------------------------- */

int sink_take_xattr(struct sink_lane *l, const struct record_xattr *r)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	int ret = 1;

	if (l->question.open)
		return sink_add_xattr(l, r);
	pthread_mutex_lock(&s->copy->lock);
	f = *sink_file_slot(s, r->id);
	if (f && (f->announced & sink_lane_bit(l)) && !f->ended)
		ret = xattrs_add(&f->xattrs, r);
	pthread_mutex_unlock(&s->copy->lock);
	if (ret > 0)
		ret = sink_take_dir_xattr(l, r);
	return ret > 0 ? fail_as(OUT_PROTOCOL,
				 "the peer sends attributes of a file it did not announce")
		       : ret;
}

/* ---- the end of a file --------------------------------------------------------------- */

/* Everything has arrived, and nothing has failed. */
static int store_finished(struct sink_lane *l, struct sink_file *f)
{
	struct sink_whole w = {
		.r = &f->r,
		.end = &f->end,
		.dir = f->dir,
		.placement = f->placement,
		.out = &f->out,
		.xattrs = f->xattrs,
		.symlink_target = f->symlink_target,
		.left_out = f->left_out,
	};
	if (f->ordered)
		sink_drain_digest(f->digest, f->sum, f->nonzero_sum);
	w.nonzero_sum = f->nonzero_sum;
	w.reach = f->reach;
	if (sink_check_file_end(l->sink, f->dir, &f->r, &f->end, f->sum))
		return -1;
	/* Close it before the file gets its name: else running the file may fail with ETXTBSY. */
	direct_close(f->out.direct);
	f->out.direct = NULL;
	if (f->out.writeback &&
	    writeback_finish(f->out.writeback, f->out.fd, f->out.base + f->end.size))
		return fail("write %s: %m", sink_shown(f));
	/* sink_finish_file() owns these; sink_shown() must not use their names from now on. */
	f->placement = NULL;
	f->out.name = NULL;
	f->xattrs = NULL;
	return sink_finish_file(l, &w);
}

/* The source could not read the file, or it has failed here before. */
static int drop_failed(struct sink_lane *l, struct sink_file *f)
{
	struct failure source = {.code = outcome_from(f->end.code)};

	if (f->placement)
		place_drop(f->placement, false);
	f->placement = NULL;
	if (f->failure_reported)
		return 0;
	memcpy(source.text, f->end.text, sizeof source.text);
	pthread_mutex_lock(&l->sink->copy->lock);
	copy_count_failure(l->sink->copy, &source, true);
	sink_note_only_failed(l->sink, f->dir, f->r.flags & FILE_MANY);
	pthread_mutex_unlock(&l->sink->copy->lock);
	return sink_send_result(l->sink, f->r.id, &source);
}

/* No other thread uses f any more. */
static int finish_sink_file(struct sink_lane *l, struct sink_file *f)
{
	bool good = f->state == SINK_OPEN && f->end.code == OUT_DONE;
	int ret = 0;

	if (good && store_finished(l, f)) {
		good = false;
		ret = sink_fail_file(l, f);
	}
	if (ret == 0 && !good)
		ret = drop_failed(l, f);
	if (ret == 0)
		sink_count_file_end(l, &f->r, &f->end, good);
	if (ret == 0 && good)
		ret = sink_queue_stored(l, f->r.id);
	if (f->placement)
		place_drop(f->placement, false);
	sink_file_free(f);
	return ret;
}

/* Lock held. */
static bool is_complete(const struct sink_file *f)
{
	return f->ended && f->busy == 0 && f->data == f->end.data && f->holes == f->end.holes &&
	       __builtin_popcountll(f->announced) == f->end.lanes;
}

int sink_release_file(struct sink_lane *l, struct sink_file *f)
{
	struct sink *s = l->sink;
	bool mine;

	pthread_mutex_lock(&s->copy->lock);
	f->busy--;
	mine = is_complete(f) && !atomic_load(&s->copy->failed);
	if (mine) {
		*sink_file_slot(s, f->r.id) = f->next;
		s->count--;
	}
	pthread_mutex_unlock(&s->copy->lock);
	return mine ? finish_sink_file(l, f) : 0;
}

int sink_take_file_end(struct sink_lane *l, const struct record_file_end *r)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	int ret = 0;

	pthread_mutex_lock(&s->copy->lock);
	f = *sink_file_slot(s, r->id);
	if (!f || !(f->announced & sink_lane_bit(l)))
		ret = fail_as(OUT_PROTOCOL, "the peer ends a file it did not announce");
	else if (f->ended || f->data > r->data || f->holes > r->holes ||
		 __builtin_popcountll(f->announced) > r->lanes)
		ret = fail_as(OUT_PROTOCOL,
			      "the peer sends a FILE_END of %s that contradicts its other records",
			      sink_shown(f));
	if (ret == 0) {
		f->ended = true;
		f->end = *r;
		f->busy++;
		/* A lane that waits for its turn may detect a gap now. */
		if (f->ordered)
			sink_wake(s, f);
	}
	pthread_mutex_unlock(&s->copy->lock);
	return ret ? -1 : sink_release_file(l, f);
}

/* Can a later run resume it?  A stream cannot be resumed. */
static bool is_resumable(const struct sink *s, const struct sink_file *f)
{
	return f->state != SINK_FAILED && !(f->r.flags & FILE_STREAM) &&
	       f->r.size >= SINK_RESUME_MIN && !s->o->single_stream;
}

void sink_drop_files(struct sink *s, bool keep)
{
	struct sink_file *f;

	for (unsigned i = 0; i < SINK_BUCKETS; i++) {
		while ((f = s->files[i]) != NULL) {
			s->files[i] = f->next;
			if (f->placement)
				place_drop(f->placement, keep && is_resumable(s, f));
			sink_file_free(f);
		}
	}
}
