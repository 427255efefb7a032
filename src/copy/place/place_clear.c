/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Removes a directory that is in the way of something else.  With --delete everything in it is
 * deleted too, but only if all of it can be, as far as is known (place_rights.c): a first pass
 * checks that, a second one deletes.  The contents are reported and counted like other deletions.
 * All of them are counted before the first one is deleted, because several lanes make room at the
 * same time.  The directory itself is not reported; what takes its name is.
 */

#include "copy/place/place_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

struct obstacle {
	struct place *place;
	int dirfd;
	const char *dir; /* its path, from the top of the transfer */
	const char *name;
	const char *shown; /* for messages */
};

static int fail_not_cleared(const struct obstacle *w, const struct tree_removal *r)
{
	if (r->too_many)
		return fail("replace directory %s: deleting its contents would exceed "
			    "--max-delete=%llu",
			    w->shown, (unsigned long long)w->place->rules->max_delete);
	return fail("replace directory %s: something in it is protected", w->shown);
}

/* *count: how many entries would be deleted.  keeps: the directory will only be renamed. */
static int rehearse_clearing(const struct obstacle *w, uint64_t *count, bool keeps)
{
	struct tree_removal r = {.rehearsed = true, .silent = true, .keeps = keeps};
	int ret = delete_tree(w->place, w->dirfd, w->dir, w->name, &r);

	*count = r.count;
	return ret > 0 ? fail_not_cleared(w, &r) : ret;
}

/* Counts all of them, if --max-delete allows that many more. */
static bool reserve_deletions(struct place *p, uint64_t count)
{
	uint64_t most = p->rules->max_delete, deleted = atomic_load(&p->deleted);

	do {
		if (count > most || deleted > most - count) {
			atomic_store(&p->too_many, true);
			return false;
		}
	} while (!atomic_compare_exchange_weak(&p->deleted, &deleted, deleted + count));
	return true;
}

/* Deletes the tree that was rehearsed, with count entries in it. */
static int clear_tree(const struct obstacle *w, struct tree_removal r, uint64_t count)
{
	int ret;

	r.too_many = !reserve_deletions(w->place, count);
	if (r.too_many)
		return fail_not_cleared(w, &r);
	r.reserved = count;
	ret = delete_tree(w->place, w->dirfd, w->dir, w->name, &r);
	atomic_fetch_sub(&w->place->deleted, r.reserved);
	return ret > 0 ? fail_not_cleared(w, &r) : ret;
}

static int report_clearing(const struct obstacle *w, uint64_t count, bool keeps)
{
	return clear_tree(w, (struct tree_removal){.rehearsed = true, .keeps = keeps}, count);
}

/* ---- a directory under an entry's name ------------------------------------------------------ */

static bool is_dir_empty(int fd, int *err)
{
	int in = dir_reopen(fd);
	DIR *dir = in < 0 ? NULL : fdopendir(in);
	struct dirent *e;
	bool empty = true;

	*err = dir ? 0 : errno;
	if (!dir) {
		close_fd(in);
		return false;
	}
	while (empty && (errno = 0, e = readdir(dir)) != NULL)
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	if (empty)
		*err = errno;
	closedir(dir);
	return empty;
}

/* While an earlier move is completed, what it moved here stays, unless it gets a backup. */
static bool may_clear(const struct place_entry *s)
{
	struct place *p = s->place;

	return (place_backs_up(p) || !atomic_load(&p->completes_move)) && p->rules->delete;
}

static int fail_not_empty(const struct place_entry *s)
{
	char shown[SHOWN_ROOM];

	if (s->place->rules->delete)
		return fail("replace directory %s: it is not empty, and an earlier move was not "
			    "completed",
			    entry_shown(s, shown));
	return fail("replace directory %s: it is not empty (--delete removes it)",
		    entry_shown(s, shown));
}

/* Without --delete only an empty directory is replaced. */
static int check_dir_empty(const struct place_entry *s)
{
	char shown[SHOWN_ROOM];
	struct stat st;
	int fd = dir_open(s->dirfd, s->name, &st), err = errno;
	bool empty = fd >= 0 && is_dir_empty(fd, &err);

	close_fd(fd);
	if (fd >= 0 && err == 0)
		return empty ? 0 : fail_not_empty(s);
	errno = err;
	return fail("list directory %s: %m", entry_shown(s, shown));
}

/* keeps: renames the directory, with everything in it, to the name of a backup. */
static int clear_obstacle(const struct place_entry *s, const struct obstacle *w, uint64_t count,
			  bool keeps)
{
	if (keeps)
		return report_clearing(w, count, true) ? -1 : backup_make_of_entry(s, true);
	return clear_tree(w, (struct tree_removal){.backs_up = place_backs_up(s->place)}, count);
}

/* only_look: deletes nothing yet. */
static int clear_entry(const struct place_entry *s, bool only_look)
{
	const struct rules *rules = s->place->rules;
	bool keeps = place_backs_up(s->place) && !*s->place->backup_dir;
	char shown[SHOWN_ROOM];
	struct obstacle w = {
		.place = s->place,
		.dirfd = s->dirfd,
		.dir = entry_whole_dir(s),
		.name = s->name,
		.shown = entry_shown(s, shown),
	};
	uint64_t count = 0;
	int ret = w.dir ? rehearse_clearing(&w, &count, keeps) : -1;

	if (ret == 0 && only_look && rules->dry_run)
		ret = report_clearing(&w, count, keeps);
	if (ret == 0 && !only_look)
		ret = clear_obstacle(s, &w, count, keeps);
	free((char *)w.dir);
	return ret;
}

int delete_check_in_the_way(const struct place_entry *s)
{
	return may_clear(s) ? clear_entry(s, true) : check_dir_empty(s);
}

int delete_in_the_way(const struct place_entry *s)
{
	char shown[SHOWN_ROOM];

	if (unlinkat(s->dirfd, s->name, AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTDIR)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return fail("delete directory %s: %m", entry_shown(s, shown));
	return may_clear(s) ? clear_entry(s, false) : fail_not_empty(s);
}

/* ---- a directory under a backup's name ----------------------------------------------------- */

int delete_old_backup(struct place *p, int dirfd, const char *dir, const char *name)
{
	struct obstacle w = {.place = p, .dirfd = dirfd, .dir = dir, .name = name, .shown = name};
	struct stat st;
	uint64_t count;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : fail("stat backup %s: %m", name);
	if (*p->backup_dir && backup_dir_check_replaced(p, name, &st))
		return -1;
	if (unlinkat(dirfd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT)
		return 0;
	if (!S_ISDIR(st.st_mode) || (errno != ENOTEMPTY && errno != EEXIST))
		return fail("replace backup %s: %m", name);
	if (p->rules->spare_trees)
		return fail("replace backup %s: it is a directory with something in it, and "
			    "nothing may be deleted here",
			    name);
	if (atomic_load(&p->completes_move))
		return fail("replace backup %s: it is a directory with something in it, and an "
			    "earlier move was not completed",
			    name);
	return rehearse_clearing(&w, &count, false)
		       ? -1
		       : clear_tree(&w, (struct tree_removal){0}, count);
}
