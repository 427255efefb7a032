/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <string.h>
#include "base/fail.h"

/* Gives a directory its id before anything in it is passed on. */
static int on_walk_dir(void *ctx, struct walk_dir *d)
{
	struct source_lane *l = ctx;
	struct source *s = l->source;

	if (source_take_id(l, &d->id))
		return -1;
	d->a.mode = modes_apply(s->modes, d->a.mode, true);
	pthread_mutex_lock(&s->copy->lock);
	ids_set(&s->ids, d->id, LIVE_DIR);
	s->ended.others++;
	s->agreed.others++;
	if (!d->parent && s->top_count < TOPS_MAX)
		s->tops[s->top_count++] = walk_dir_get(d);
	pthread_mutex_unlock(&s->copy->lock);
	return source_find_marker(s, d);
}

static int on_walk_piece(void *ctx, struct walk_piece *p)
{
	struct source_lane *l = ctx;
	struct source *s = l->source;

	p->next = NULL;
	pthread_mutex_lock(&s->copy->lock);
	*s->walked.end = p;
	s->walked.end = &p->next;
	s->walked.entries += p->count;
	pthread_cond_broadcast(&s->copy->changed);
	pthread_mutex_unlock(&s->copy->lock);
	return 0;
}

/* ---- names that --delete must not touch ----------------------------------------------- */

static int put_keep(struct source_lane *l, bool last)
{
	struct record_keep r = {.last = last};
	int ret = 0;

	if (l->kept && (last || l->keep.used > 0)) {
		r.dir = l->kept->id;
		r.names = reader_of(l->keep_room, l->keep.used);
		ret = source_put_dir(l, l->kept) ||
				      source_reserve_room(l, RECORD_KEEP_HEAD + l->keep.used)
			      ? -1
			      : 0;
		if (ret == 0)
			record_keep_encode(&l->records, &r);
	}
	l->keep = writer_of(l->keep_room, sizeof l->keep_room);
	return ret;
}

static int on_walk_keep(void *ctx, struct walk_dir *d, const char *name)
{
	struct source_lane *l = ctx;

	if (l->kept != d && put_keep(l, false))
		return -1;
	if (l->kept != d) {
		walk_dir_put(l->kept);
		l->kept = walk_dir_get(d);
	}
	if (!name)
		return put_keep(l, true);
	if (record_keep_add(&l->keep, name))
		return 0;
	if (put_keep(l, false))
		return -1;
	record_keep_add(&l->keep, name);
	return 0;
}

/* ---- the walk ------------------------------------------------------------------------- */

static int on_walk_failed(void *ctx, struct walk_dir *d, const char *name)
{
	struct source_lane *l = ctx;

	return source_report_failed(l, *name ? EVENT_FILE : EVENT_DIR, d, name, d ? NULL : name);
}

int source_walk(struct source_lane *l)
{
	struct source *s = l->source;
	const struct walk_out out = {
		.ctx = l,
		.dir = on_walk_dir,
		.piece = on_walk_piece,
		.keep = on_walk_keep,
		.failed = on_walk_failed,
	};
	int ret = walk_step(s->walk, &out);

	if (ret >= 0 && put_keep(l, false))
		ret = -1;
	walk_dir_put(l->kept);
	l->kept = NULL;
	if (ret < 0)
		return -1;
	pthread_mutex_lock(&s->copy->lock);
	s->walked.walking = false;
	s->walked.over = ret == 0;
	pthread_cond_broadcast(&s->copy->changed);
	pthread_mutex_unlock(&s->copy->lock);
	return 0;
}
