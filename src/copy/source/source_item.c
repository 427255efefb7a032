/* SPDX-License-Identifier: Apache-2.0 */

/* One thing that the walk found, above all one regular file: opens it, and sends it, asks about it,
 * keeps it aside, or leaves it out. */

#include "copy/names/name.h"
#include "copy/source/source_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"

/* ---- failures ------------------------------------------------------------------------ */

void source_report_event(struct source *s, enum event_what what, struct walk_dir *d,
			 const char *name, const struct failure *why)
{
	struct msg_event e = {.what = (uint8_t)what, .code = (uint8_t)why->code};
	char *room;

	if (!s->rules->events || !s->copy->result->on_event)
		return;
	room = malloc(EVENT_PATH_MAX);
	if (!room)
		return;
	e.path = walk_path(d, name, room, EVENT_PATH_MAX);
	e.path_len = (uint16_t)strlen(e.path);
	copy_report_event(s->copy, &e);
	free(room);
}

int source_report_failed(struct source_lane *l, enum event_what what, struct walk_dir *d,
			 const char *name, const char *path)
{
	struct source *s = l->source;
	char room[NAME_MAX_WIRE];
	struct failure why;

	if (copy_interrupted(s->copy))
		return -1;
	why = *failed();
	pthread_mutex_lock(&s->copy->lock);
	s->ended.failed++;
	s->agreed.failed++;
	copy_count_failure(s->copy, &why, false);
	pthread_mutex_unlock(&s->copy->lock);
	if (s->only)
		return fail_again(&why);
	copy_report_failure(s->copy, path ? path : walk_shown(d, name, room, sizeof room), &why);
	source_report_event(s, what, d, name, &why);
	return 0;
}

/* ---- one file ------------------------------------------------------------------------ */

const char *item_shown(const struct source_item *it, char *to, size_t size)
{
	return it->path ? it->path : walk_shown(it->dir, it->name, to, size);
}

void item_close(struct source_item *it)
{
	close_fd(it->fd);
	it->fd = -1;
}

/* Gives up the file's id. */
static void drop_item_id(struct source_lane *l, struct source_item *it)
{
	struct source *s = l->source;

	if (it->id == 0)
		return;
	pthread_mutex_lock(&s->copy->lock);
	if (it->aside && it->aside->id == it->id)
		ids_settle(&s->ids, it->id);
	else if (!(it->flags & FILE_LINKED))
		source_return_id(l, it->id);
	/* A leading name's id is not used again: another name takes the lead. */
	if (it->flags & FILE_LINKED)
		links_fail(&s->links, it->id);
	pthread_mutex_unlock(&s->copy->lock);
	it->id = 0;
	it->flags &= ~(uint32_t)FILE_LINKED;
	it->group = NULL;
}

int item_report_failed(struct source_lane *l, struct source_item *it)
{
	item_close(it);
	if (it->id) {
		struct failure why = *failed();

		drop_item_id(l, it);
		fail_again(&why);
	}
	return source_report_failed(l, EVENT_FILE, it->dir, it->name, it->path);
}

int source_use_dir(struct source_lane *l, struct walk_dir *d)
{
	if (l->dir == d)
		return 0;
	if (l->dir) {
		walk_dir_release(l->dir);
		walk_dir_put(l->dir);
	}
	l->dir = NULL;
	if (!d)
		return 0;
	if (walk_dir_use(d, &l->dirfd))
		return -1;
	l->dir = walk_dir_get(d);
	return 0;
}

static int fail_open(const struct source_item *it)
{
	char room[FAIL_TEXT_MAX];

	return fail_as(errno == ENOENT ? OUT_VANISHED : OUT_FILE, "open %s: %m",
		       item_shown(it, room, sizeof room));
}

static int open_named_item(struct source_lane *l, struct source_item *it)
{
	struct stopper stopper = {.stop = copy_stopped, .ctx = l->source->copy};

	if (source_file_open(it->path, it->missing, &stopper, &it->fd, &it->st))
		return -1;
	if (!S_ISDIR(it->st.st_mode))
		return 0;
	if (l->source->rules->recursive)
		return fail_as(OUT_CHANGED, "open %s: it is now a directory", it->path);
	return fail("%s is a directory (-r copies it)", it->path);
}

/* Another entry may have replaced the regular file that the walk found. */
static int check_still_regular(const struct source_item *it)
{
	char room[FAIL_TEXT_MAX];

	if (S_ISREG(it->st.st_mode))
		return 0;
	return fail_as(OUT_CHANGED, "open %s: no longer a regular file",
		       item_shown(it, room, sizeof room));
}

static int open_found_item(struct source_lane *l, struct source_item *it)
{
	if (source_use_dir(l, it->dir))
		return -1;
	it->fd = walk_open_file(l->dirfd, it->name, l->source->rules->copy_links);
	if (it->fd < 0 || fstat(it->fd, &it->st))
		return fail_open(it);
	return check_still_regular(it);
}

/* A size that means nothing counts as 0. */
static void set_item_size(struct source_item *it, bool endless)
{
	it->flags &= ~(uint32_t)FILE_STREAM;
	it->flags |= endless ? FILE_STREAM : 0;
	it->size = endless ? 0 : (uint64_t)it->st.st_size;
}

int item_open(struct source_lane *l, struct source_item *it)
{
	if (it->path ? open_named_item(l, it) : open_found_item(l, it))
		return -1;
	set_item_size(it, source_file_is_endless(it->fd, &it->st,
						 sizes_of(&l->sizes, it->fd, &it->st)));
	return 0;
}

/* Examines the file, if possible without opening it. */
static int stat_item(struct source_lane *l, struct source_item *it)
{
	enum sizes sizes;

	if (source_use_dir(l, it->dir))
		return -1;
	if (walk_stat(l->dirfd, it->name, l->source->rules->copy_links, &it->st))
		return fail_open(it);
	if (check_still_regular(it))
		return -1;
	/* Open a file that is on another device than its directory, because it may be a mount
	 * point of any file system.  On an overlay all files are; there only the first is opened.
	 */
	if (it->st.st_dev != it->dir->held.dev && !sizes_known(&l->sizes, &it->st))
		return item_open(l, it);
	sizes = sizes_of(&l->sizes, l->dirfd, &it->st);
	if (sizes == SIZES_TRUE_UNLESS_ZERO && it->st.st_size == 0)
		return item_open(l, it);
	set_item_size(it, sizes == SIZES_MEANINGLESS);
	return 0;
}

void item_record(const struct source_lane *l, const struct source_item *it, struct record_file *r)
{
	*r = (struct record_file){
		.want = it->want,
		.dir = it->dir ? it->dir->id : 0,
		.flags = it->flags,
		.type = TYPE_REGULAR,
		.size = it->size,
	};
	walk_attr_of(&it->st, &r->a);
	r->a.mode = modes_apply(l->source->modes, r->a.mode, false);
	memcpy(r->name, it->name, strlen(it->name) + 1);
}

int item_removal(struct source_lane *l, const struct source_item *it, struct removal **out)
{
	struct source *s = l->source;
	struct seen seen = seen_of(&it->st);

	*out = NULL;
	/* The sink reports what --ignore-existing or --existing leaves out as stored, unless it was
	 * asked about. */
	if (!s->removes || (s->rules->ignore_existing && !it->aside) ||
	    (s->rules->existing && !it->aside && !it->permitted))
		return 0;
	return removal_new(s, it->path ? NULL : it->dir, it->path ? it->path : it->name, &seen,
			   out);
}

static bool is_size_excluded(const struct source *s, const struct source_item *it)
{
	uint64_t size = it->size;

	return !(it->flags & FILE_STREAM) &&
	       (size < s->rules->min_size || size > s->rules->max_size);
}

/* 1: an earlier name of the inode leads, and this one was queued as a hard link to it. */
static int join_item_links(struct source_lane *l, struct source_item *it)
{
	struct source *s = l->source;
	const struct seen seen = seen_of(&it->st);
	struct new_other other = {
		.dir = it->dir,
		.path = it->path,
		.name = it->name,
		.want = it->want,
	};
	int ret;

	if (!s->rules->hard_links || it->st.st_nlink < 2 || it->linked ||
	    (it->flags & FILE_STREAM) || (!it->dir && s->only))
		return 0;
	if (it->id == 0 && source_take_id(l, &it->id))
		return -1;
	pthread_mutex_lock(&s->copy->lock);
	ret = links_join(&s->links, &seen, it->id, &other.group);
	if (ret == 1)
		ret = others_add(&s->hard_links, &other) ? -1 : 1;
	else if (ret == 0)
		it->flags |= FILE_LINKED;
	pthread_mutex_unlock(&s->copy->lock);
	it->linked = true;
	it->group = other.group;
	if (ret == 1) {
		source_return_id(l, it->id);
		l->counts.hard_links++;
		l->counts.regular--;
	}
	return ret;
}

static bool must_ask(const struct source *s, const struct source_item *it)
{
	if (it->aside || !s->asks)
		return false;
	/* Nothing can be compared if the size is unknown.  But --dry-run sends nothing unasked. */
	if (it->flags & FILE_STREAM)
		return s->rules->dry_run && S_ISREG(it->st.st_mode);
	if (source_asks_all(s, it->dir))
		return true;
	return (it->size >= RESUME_MIN && !walk_dir_is_made(it->dir)) || source_may_clone(s, it);
}

/* Must the source first know whether the target may be replaced?  If one of several names may not
 * be, the others must not become links to it.  A file of unknown size is asked about nothing else.
 * And an empty file is removed if the target is the same, but not if the target is only left alone.
 */
static bool must_ask_permission(const struct source *s, const struct source_item *it)
{
	if (it->permitted || it->aside || !s->asks || !source_needs_permission(s) ||
	    !S_ISREG(it->st.st_mode))
		return false;
	return (it->flags & FILE_STREAM) || (s->rules->hard_links && it->st.st_nlink > 1) ||
	       (s->removes && s->rules->checksum && it->size == 0);
}

static int consider_item(struct source_lane *l, struct source_item *it)
{
	struct source *s = l->source;
	int ret;

	if (is_size_excluded(s, it)) {
		item_close(it);
		return 0;
	}
	l->counts.regular += !it->counted;
	it->counted = true;
	if (must_ask_permission(s, it))
		return source_ask_permission(l, it);
	ret = join_item_links(l, it);
	if (ret) {
		item_close(it);
		return ret < 0 ? -1 : 0;
	}
	return must_ask(s, it) ? source_ask(l, it) : item_send(l, it);
}

/* Has the sink cloned the file as it is now? */
static bool was_cloned(const struct source_lane *l, const struct source_item *it)
{
	if (!it->aside || it->aside->answer != ANSWER_CLONED || !aside_is_current(l, it))
		return false;
	return seen_is_untouched(&it->aside->seen, &it->st);
}

static int send_large(struct source_lane *l, struct source_item *it)
{
	struct stopper stopper = {.stop = copy_stopped, .ctx = l->source->copy};
	char room[NAME_MAX_WIRE];
	struct source_file *f;

	if (source_file_new(item_shown(it, room, sizeof room), it->fd, &it->st, &stopper, &f))
		return item_report_failed(l, it);
	it->fd = -1;
	if (item_removal(l, it, &f->removal)) {
		source_file_free(f);
		return item_report_failed(l, it);
	}
	f->id = it->id;
	f->want = it->want;
	f->flags = it->flags;
	f->mode = modes_apply(l->source->modes, f->st.st_mode & 07777, false);
	f->dir = walk_dir_get(it->dir);
	memcpy(f->name, it->name, strlen(it->name) + 1);
	f->cloned = was_cloned(l, it);
	if (f->flags & FILE_STREAM)
		source_file_become_stream(f);
	else if (!l->source->rules->no_sparse && !f->cloned)
		source_file_find_holes(f);
	if (!f->cloned)
		source_file_choose(f, l->source->o->direct, &l->source->direct_missed);
	if (it->aside && it->aside->known && aside_is_current(l, it)) {
		f->known = it->aside->known;
		it->aside->known = NULL;
	}
	f->compared = it->aside && it->aside->answer == ANSWER_COMPARE && aside_is_current(l, it);
	return source_add_file(l, f);
}

static bool is_crowded(struct source *s)
{
	bool crowded;

	pthread_mutex_lock(&s->copy->lock);
	crowded = s->large.count >= UNFINISHED_MAX;
	pthread_mutex_unlock(&s->copy->lock);
	return crowded;
}

/* Reads as much of a file of unknown size as fits a block: mostly that is all of it.  A file that
 * the user named is sent as a stream instead, because reading it may block. */
static int measure_item(struct source_lane *l, struct source_item *it)
{
	char room[FAIL_TEXT_MAX];
	ssize_t n;

	if (!(it->flags & FILE_STREAM) || it->path)
		return 0;
	n = source_file_measure(it->fd, l->scratch, (size_t)l->source->small_max);
	if (n < 0)
		return fail("read %s: %m", item_shown(it, room, sizeof room));
	if ((uint64_t)n > l->source->small_max) {
		if (lseek(it->fd, 0, SEEK_SET) < 0)
			return fail("seek in %s: %m", item_shown(it, room, sizeof room));
		return 0;
	}
	it->flags &= ~(uint32_t)FILE_STREAM;
	it->measured = true;
	it->size = (uint64_t)n;
	return 0;
}

/* The file is open now, so the group's `seen' is updated from it.  False: another file was renamed
 * over it meanwhile, which does not lead the group. */
static bool update_group_seen(struct source_lane *l, const struct source_item *it)
{
	struct source *s = l->source;
	bool same_inode;

	if (!it->group)
		return true;
	pthread_mutex_lock(&s->copy->lock);
	same_inode = seen_is_same_inode(&it->group->seen, &it->st);
	if (same_inode && it->group->id == it->id)
		it->group->seen = seen_of(&it->st);
	pthread_mutex_unlock(&s->copy->lock);
	return same_inode;
}

static int reconsider_item(struct source_lane *l, struct source_item *it)
{
	drop_item_id(l, it);
	it->aside = NULL;
	it->linked = false;
	it->permitted = false;
	return consider_item(l, it);
}

int item_send(struct source_lane *l, struct source_item *it)
{
	if (it->fd < 0 && item_open(l, it))
		return item_report_failed(l, it);
	if (!update_group_seen(l, it))
		return reconsider_item(l, it);
	if (measure_item(l, it))
		return item_report_failed(l, it);
	if (item_is_small(l, it))
		return item_send_small(l, it);
	if (!it->aside && !it->path && is_crowded(l->source))
		return source_park(l, it);
	return send_large(l, it);
}

/* ---- entries ------------------------------------------------------------------------- */

static int take_dir_xattrs(struct source_lane *l, struct walk_dir *d)
{
	const struct rules *rules = l->source->rules;
	const uint32_t led = DIR_CONTENTS | DIR_IMPLIED;
	char room[FAIL_TEXT_MAX];
	struct xattrs *x = NULL;
	int ret;

	/* The target itself keeps its own if --relative or --files-from only leads through it. */
	if ((!rules->acls && !rules->xattrs) || (d->flags & led) == led || source_use_dir(l, d))
		return 0;
	if (xattrs_read(l->dirfd, walk_shown(d, "", room, sizeof room), rules, &x))
		return source_report_failed(l, EVENT_DIR, d, "", NULL) ||
				       source_put_unread(l, d->id)
			       ? -1
			       : 0;
	ret = x && (source_put_owners(l, &d->a, x) || source_put_xattrs(l, d->id, x)) ? -1 : 0;
	xattrs_free(x);
	return ret;
}

/* Sends a directory with its attributes.  If it cannot be opened, the walk has reported that. */
static int take_dir(struct source_lane *l, struct walk_dir *d)
{
	if (source_put_dir(l, d) || take_dir_xattrs(l, d))
		return -1;
	l->counts.dirs++;
	/* Send it at once: the sooner the sink answers NEW, the fewer questions are asked. */
	return !d->parent && l->source->asks_all && !l->records_sent ? source_send_records(l) : 0;
}

int item_take(struct source_lane *l, struct source_item *it)
{
	struct source *s = l->source;
	/* A file that --min-size or --max-size excludes is not opened. */
	bool stat_first = source_asks_all(s, it->dir) || s->rules->min_size > 0 ||
			  s->rules->max_size < UINT64_MAX;

	if (!it->path && stat_first ? stat_item(l, it) : item_open(l, it))
		return item_report_failed(l, it);
	if (it->path && source_put_origin(l, it->want, it->dir, it->name, &it->st)) {
		close_fd(it->fd);
		return -1;
	}
	return consider_item(l, it);
}

static int take_regular(struct source_lane *l, const struct source_entry *e)
{
	struct source_item it = {
		.dir = e->piece->dir,
		.name = e->name,
		.want = e->piece->want,
		.flags = FILE_MANY,
		.fd = -1,
	};

	return item_take(l, &it);
}

static int take_named(struct source_lane *l, const struct source_entry *e)
{
	char name[NAME_ROOM];
	struct source_item it = {
		.dir = e->piece->dir,
		.name = name_last(e->name, name, sizeof name),
		.path = e->name,
		.want = e->piece->want,
		.flags = (l->source->found.count > 1 ? FILE_MANY : 0) |
			 (l->source->moved_before ? FILE_MOVED : 0),
		.missing = e->piece->missing,
		.fd = -1,
	};

	return item_take(l, &it);
}

static int take_other(struct source_lane *l, const struct source_entry *e)
{
	struct source *s = l->source;
	const struct new_other other = {
		.dir = e->piece->dir,
		.name = e->name,
		.want = e->piece->want,
	};
	int ret;

	if (e->type == WALK_SYMLINK)
		l->counts.symlinks++;
	else
		l->counts.nodes++;
	pthread_mutex_lock(&s->copy->lock);
	ret = others_add(&s->others, &other);
	pthread_mutex_unlock(&s->copy->lock);
	return ret;
}

static int take_entry(struct source_lane *l, const struct source_entry *e)
{
	switch (e->type) {
	case WALK_DIR:
		return take_dir(l, e->piece->dir);
	case WALK_NAMED:
		return take_named(l, e);
	case WALK_REGULAR:
		return take_regular(l, e);
	case WALK_SYMLINK:
	case WALK_FIFO:
	case WALK_CHAR:
	case WALK_BLOCK:
		return take_other(l, e);
	}
	return 0;
}

/* Does a large file wait, and is the block full enough to be sent before it? */
static bool is_turn_over(const struct source_lane *l)
{
	return atomic_load_explicit(&l->source->large.is_open, memory_order_relaxed) &&
	       l->records.used > l->records.size / 4 * 3;
}

int source_send_entries(struct source_lane *l)
{
	int ret = 0;

	while (ret == 0 && l->taken_at < l->taken_count && !l->records_sent) {
		const struct source_entry *e = &l->taken[l->taken_at++];

		ret = take_entry(l, e);
		walk_piece_done(e->piece, 1);
		if (ret == 0 && !l->records_sent && is_turn_over(l))
			ret = source_send_records(l);
	}
	return ret;
}
