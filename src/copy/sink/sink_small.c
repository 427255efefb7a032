/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A file whose FILE, DATA and FILE_END are in one block needs no entry in the table of files,
 * because no other lane gets any part of it.  Most files of a tree are of this kind, so this path
 * is short and takes the copy's lock once.
 */

#include "copy/sink/sink_impl.h"

#include <string.h>
#include "base/fail.h"
#include "copy/io/floor.h"

struct sink_small {
	const struct record_file *r;
	struct sink_dir *dir;
	struct xattrs *xattrs;
	const uint8_t *bytes;
	const struct record_file_end *end;
};

/* False: the file needs an entry in the table in any case. */
static bool may_be_small(const struct sink *s, const struct reader *reader,
			 const struct record_file *r)
{
	if (!s->place || (r->flags & (FILE_STREAM | FILE_ORDERED | FILE_SPARSE)))
		return false;
	return r->size < reader->left && (r->type != TYPE_REGULAR || !s->rules->dry_run);
}

/* Adds the next record.  False: it does not belong to the file. */
static bool add_small_record(struct sink_small *f, const struct record *next)
{
	switch (next->type) {
	case RECORD_XATTR:
		return next->xattr.id == f->r->id && xattrs_add(&f->xattrs, &next->xattr) == 0;
	case RECORD_DATA:
		if (next->data.id != f->r->id || f->bytes || next->data.pos != 0 ||
		    next->data.len != f->r->size)
			return false;
		f->bytes = next->data.bytes;
		return true;
	case RECORD_FILE_END:
		f->end = &next->end;
		return true;
	default:
		return false;
	}
}

static bool is_small_whole(const struct sink_small *f)
{
	const struct record_file_end *e = f->end;

	return e && e->id == f->r->id && e->lanes == 1 && e->code == OUT_DONE &&
	       e->size == f->r->size && e->data == e->size && e->holes == 0 &&
	       (f->bytes || f->r->size == 0);
}

/* Looks ahead in the block.  False: sink_file.c takes the records, and reports what is wrong. */
static bool gather_small(struct sink_lane *l, struct reader *at, struct sink_small *f)
{
	while (!f->end && record_next(at, &l->ahead) > 0 && add_small_record(f, &l->ahead))
		;
	return is_small_whole(f);
}

/* False: the id is in use.  Forgets a question about the file. */
static bool claim_new_id(struct sink *s, uint32_t id)
{
	struct sink_file *asked;
	bool new;

	pthread_mutex_lock(&s->copy->lock);
	asked = *sink_file_slot(s, id);
	new = (!asked || asked->state == SINK_COMPARED) && !sink_dir_find(s, id);
	if (asked && new)
		sink_remove_asked(s, asked);
	pthread_mutex_unlock(&s->copy->lock);
	if (asked && new)
		sink_file_free(asked);
	return new;
}

static int check_small_digest(const struct sink *s, const struct sink_small *f)
{
	uint64_t sum[2] = {0, 0};

	if (f->r->size > 0)
		cell_hash_of(0, f->bytes, (size_t)f->r->size, sum);
	return sink_check_file_end(s, f->dir, f->r, f->end, sum);
}

static int begin_small(struct sink_lane *l, const struct sink_small *f, struct placement **t,
		       struct outlet *out)
{
	struct sink *s = l->sink;
	struct failure why;

	if (place_begin_whole(s->place, sink_dir_place(f->dir), f->r, t))
		return -1;
	if (placement_outlet(*t, f->r->name, out) == 0) {
		out->sparse = s->rules->sparse;
		out->stopper = (struct stopper){.stop = copy_stopped, .ctx = s->copy};
		if (f->r->size == 0 || outlet_write(out, 0, f->bytes, (size_t)f->r->size) == 0)
			return 0;
		/* Only a failure needs the full name, which placement_name() builds. */
		floor_fail(placement_name(*t));
	}
	why = *failed();
	place_drop(*t, false);
	return fail_again(&why);
}

/* -1: the file fails. */
static int store_small(struct sink_lane *l, struct sink_small *f)
{
	char link[LINK_TARGET_MAX + 1];
	struct placement *t = NULL;
	struct outlet out;
	struct sink_whole w = {
		.r = f->r,
		.end = f->end,
		.dir = f->dir,
		.out = &out,
		.xattrs = f->xattrs,
		.bytes = f->bytes,
		.reach = f->r->size,
	};

	if (check_small_digest(l->sink, f) || sink_dir_check(l->sink, f->dir, f->r->name))
		return -1;
	if (f->r->type == TYPE_SYMLINK) {
		memcpy(link, f->bytes, (size_t)f->r->size);
		link[f->r->size] = '\0';
		w.symlink_target = link;
	} else if (f->r->type == TYPE_REGULAR && begin_small(l, f, &t, &out)) {
		return -1;
	}
	w.placement = t;
	f->xattrs = NULL;
	return sink_finish_file(l, &w);
}

static int take_small(struct sink_lane *l, struct sink_small *f)
{
	const struct record_file *r = f->r;
	int ret;

	if (sink_require_dir(l, r->dir, &f->dir) || sink_accept_file(l->sink, r, f->dir))
		return -1;
	ret = sink_dir_is_left_out(f->dir) ? check_small_digest(l->sink, f) : store_small(l, f);
	if (ret && sink_report_failed(l, r->id, sink_event_what(r->type), f->dir, r->name,
				      r->flags & FILE_MANY))
		return -1;
	sink_count_file_end(l, r, f->end, ret == 0);
	if (r->type == TYPE_REGULAR) {
		l->sums.bytes += r->size;
		l->sums.counts.sent += r->size;
	}
	return ret ? 0 : sink_queue_stored(l, r->id);
}

int sink_take_small(struct sink_lane *l, struct reader *reader, const struct record_file *r)
{
	struct sink_small f = {.r = r};
	struct reader at = *reader;
	int ret = 0;

	if (may_be_small(l->sink, reader, r) && gather_small(l, &at, &f) &&
	    claim_new_id(l->sink, r->id)) {
		*reader = at;
		ret = take_small(l, &f) ? -1 : 1;
	}
	xattrs_free(f.xattrs);
	return ret;
}
