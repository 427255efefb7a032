/* SPDX-License-Identifier: Apache-2.0 */

/* The end: deletions, then the metadata of directories, children before their parents, then the
 * marker. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

static int compare_dir_inodes(const void *a, const void *b)
{
	const struct place_dir *x = *(struct place_dir *const *)a;
	const struct place_dir *y = *(struct place_dir *const *)b;

	if (x->held.dev != y->held.dev)
		return x->held.dev < y->held.dev ? -1 : 1;
	if (x->held.ino != y->held.ino)
		return x->held.ino < y->held.ino ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

static bool is_same_dir(const struct place_dir *a, const struct place_dir *b)
{
	return a->held.dev == b->held.dev && a->held.ino == b->held.ino;
}

/* Entries of dirs that are one directory: several sources go into it, or names fold to one. */
struct dir_group {
	struct place_dir **dirs;
	size_t count;
};

static int compare_group_orders(const void *a, const void *b)
{
	const struct dir_group *x = a, *y = b;

	return (x->dirs[0]->order > y->dirs[0]->order) - (x->dirs[0]->order < y->dirs[0]->order);
}

/* Puts all existing directories into room for them, and their groups into groups: each after that
 * of its parent, so that opening one needs few others.  Returns how many groups there are. */
static size_t group_dirs(struct place *p, struct place_dir **dirs, struct dir_group *groups)
{
	size_t count = 0, n = 0;

	for (struct place_dir *d = p->dirs; d; d = d->next) {
		if (!d->missing)
			dirs[count++] = d;
	}
	qsort(dirs, count, sizeof(struct place_dir *), compare_dir_inodes);
	for (size_t i = 0; i < count; i++) {
		if (i > 0 && is_same_dir(dirs[i - 1], dirs[i]))
			groups[n - 1].count++;
		else
			groups[n++] = (struct dir_group){dirs + i, 1};
	}
	qsort(groups, n, sizeof *groups, compare_group_orders);
	return n;
}

/* Calls each for every group. */
static int for_each_same_dir(struct place *p,
			     void (*each)(void *ctx, struct place_dir *const *, size_t), void *ctx)
{
	struct dir_group *groups;
	struct place_dir **dirs;
	size_t count = 0;

	for (struct place_dir *d = p->dirs; d; d = d->next)
		count += !d->missing;
	dirs = calloc(count + 1, sizeof(struct place_dir *));
	groups = calloc(count + 1, sizeof *groups);
	if (!dirs || !groups) {
		free(dirs);
		free(groups);
		return fail_as(OUT_MEMORY, "sort directories: %m");
	}
	count = group_dirs(p, dirs, groups);
	for (size_t i = 0; i < count && !place_stopped(p); i++)
		each(ctx, groups[i].dirs, groups[i].count);
	free(dirs);
	free(groups);
	return 0;
}

/* ---- deletions ----------------------------------------------------------------------------- */

static void report_unlisted(const struct place_dir *d, int err, struct place_finish *f)
{
	struct failure why;
	char *path = place_whole_path(d);
	const char *from_top = path ? path : d->name;

	errno = err;
	fail("list directory %s: %m", *from_top ? from_top : d->place->dst.shown);
	why = *failed();
	f->on_deleted(f->ctx, EVENT_DIR, from_top, &why);
	free(path);
}

/* Several sources may go into one directory.  A name that one of them has stays.  Nothing is
 * deleted unless the names of all of them have arrived. */
static void delete_extraneous(void *ctx, struct place_dir *const *same, size_t count)
{
	struct place_finish *f = ctx;
	bool deletes = false;

	for (size_t i = 0; i < count; i++)
		deletes = deletes || !dir_is_only_implied(same[i]);
	for (size_t i = 0; i < count; i++) {
		int unlisted;

		if (dir_is_only_implied(same[i]))
			continue;
		deletes = kept_has_left(same[i]->kept, &unlisted) && deletes;
		if (unlisted)
			report_unlisted(same[i], unlisted, f);
	}
	if (deletes)
		delete_left(same, count, f);
}

/* ---- metadata ------------------------------------------------------------------------------ */

/* Where several sources have one directory, the attributes of the first source count, as with
 * files, even if another source's directory arrived first. */
static void merge_dir_state(struct place_dir *first, struct place_dir *again)
{
	first->fresh |= again->fresh;
	if (again->loosened && !first->loosened) {
		first->loosened = true;
		first->mode_to_restore = again->mode_to_restore;
	}
	again->superseded = true;
}

static void merge_same_dirs(void *ctx, struct place_dir *const *same, size_t count)
{
	struct place_dir *first = NULL;

	(void)ctx;
	for (size_t i = 0; i < count; i++) {
		if (!(same[i]->flags & DIR_AGAIN) && (!first || (first->flags & DIR_IMPLIED)))
			first = same[i];
	}
	for (size_t i = 0; first && i < count; i++) {
		if (same[i]->flags & DIR_AGAIN)
			merge_dir_state(first, same[i]);
	}
}

static bool has_repeated_dirs(const struct place *p)
{
	for (const struct place_dir *d = p->dirs; d; d = d->next) {
		if (d->flags & DIR_AGAIN)
			return true;
	}
	return false;
}

bool dir_needs_metadata(const struct place_dir *d)
{
	unsigned given = DIR_CONTENTS | DIR_IMPLIED;

	return !d->missing && !d->unread && ((d->flags & given) != given || d->fresh);
}

static int set_dir_metadata(struct place_dir *d, int fd)
{
	struct place *p = d->place;
	struct place_entry s = {.place = p, .dir = d->up, .dirfd = -1, .name = d->name};
	struct metadata m;
	struct stat st;
	char shown[SHOWN_ROOM];

	if (fstat(fd, &st))
		return fail("stat directory %s: %m", entry_shown(&s, shown));
	metadata_want_dir(d, &m);
	if (!m.has_mode && d->loosened) {
		m.has_mode = true;
		m.mode = d->mode_to_restore;
		m.set_uid = st.st_uid;
		m.set_gid = st.st_gid;
	}
	if (dir_needs_metadata(d))
		return metadata_set(p, fd, &st, &m, d->xattrs, &s);
	if (d->loosened && metadata_chmod(p, fd, d->mode_to_restore))
		return fail("set mode of %s: %m", entry_shown(&s, shown));
	return 0;
}

/* When btrfs replays its log after a power cut, it gives each directory in which names were
 * replaced the time of the replay, whatever fsync stored.  Only a committed transaction keeps it.
 */
static bool loses_times_in_log(int fd)
{
	struct statfs fs;

	return RETRIED(fstatfs(fd, &fs)) == 0 && (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC;
}

static int fail_sync(struct place_dir *d)
{
	char shown[SHOWN_ROOM];

	return fail("fsync directory %s: %m",
		    place_path(d, "", shown, sizeof shown) ? shown : d->place->dst.shown);
}

/* It is opened first, because its final mode may not allow that. */
static int set_and_sync_dir(struct place_dir *d, int fd)
{
	int own = dir_reopen(fd), ret;

	if (own < 0)
		return fail_sync(d);
	ret = set_dir_metadata(d, fd);
	if (ret == 0 && fsync(own))
		ret = fail_sync(d);
	close_fd(own);
	return ret;
}

static void report_dir_failed(const struct place_dir *d, struct place_finish *f)
{
	struct failure why = *failed();

	f->on_dir(f->ctx, d->id, &why);
}

/* One commit covers all finished directories of a btrfs.  *uncommitted is the last of them, which
 * is reported if the commit fails. */
static void commit_dirs(struct place_dir **uncommitted, struct place_finish *f)
{
	struct place_dir *d = *uncommitted;
	int fd = d ? dir_use(d) : -1;

	*uncommitted = NULL;
	if (!d)
		return;
	if (fd < 0 || (dir_sync_all(fd) && fail_sync(d)))
		report_dir_failed(d, f);
	if (fd >= 0)
		dir_release(d);
}

static void finish_dir(struct place_dir *d, struct place_dir **uncommitted, struct place_finish *f)
{
	int fd = dir_use(d), ret = -1;
	bool commits = fd >= 0 && d->place->rules->fsync && loses_times_in_log(fd);

	if (fd >= 0) {
		ret = d->place->rules->fsync && !commits ? set_and_sync_dir(d, fd)
							 : set_dir_metadata(d, fd);
		dir_release(d);
	}
	if (ret) {
		report_dir_failed(d, f);
		return;
	}
	if (!commits)
		return;
	if (*uncommitted && (*uncommitted)->held.dev != d->held.dev)
		commit_dirs(uncommitted, f);
	*uncommitted = d;
}

/* While the marker exists, a rerun takes the target for that of an interrupted run. */
static void remove_marker(struct place *p, struct place_finish *f)
{
	struct failure why;

	if (unlinkat(p->top->held.fd, p->marker, 0) == 0 || errno == ENOENT)
		return;
	fail("remove %s: %m", p->marker);
	why = *failed();
	f->on_deleted(f->ctx, EVENT_FILE, p->marker, &why);
}

static int finish_dirs(struct place *p, struct place_finish *f)
{
	struct place_dir *d, *uncommitted = NULL;

	if (has_repeated_dirs(p) && for_each_same_dir(p, merge_same_dirs, NULL))
		return -1;
	for (d = p->dirs; d && !place_stopped(p); d = d->next) {
		if (!d->missing && !d->is_target && !d->superseded)
			finish_dir(d, &uncommitted, f);
	}
	if (d)
		return 1;
	/* Before the target gets its times, because the removal changes them. */
	if (p->marker[0])
		remove_marker(p, f);
	for (d = p->dirs; d; d = d->next) {
		if (d->is_target && !d->superseded)
			finish_dir(d, &uncommitted, f);
	}
	commit_dirs(&uncommitted, f);
	return 0;
}

int place_finish_run(struct place *p, struct place_finish *f)
{
	int ret = 0;

	if (f->deletions && p->rules->delete)
		ret = for_each_same_dir(p, delete_extraneous, f);
	f->deleted = atomic_load(&p->deleted);
	f->too_many = atomic_load(&p->too_many);
	if (ret == 0 && !p->rules->dry_run)
		ret = finish_dirs(p, f);
	if (ret == 0 && place_stopped(p))
		ret = 1;
	if (ret > 0)
		return fail_as(OUT_SIGNAL, "interrupted");
	p->completed = ret == 0;
	return ret;
}
