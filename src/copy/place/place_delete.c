/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Deletes what the source does not have, or what is in its way (place_clear.c): names in held
 * directories, and whole directories below them.  Only two descriptors of such a directory tree are
 * open at a time, at any depth.  The walk goes down name by name without following symlinks, and up
 * by "..", which must be the directory that it came from.
 */

#include "copy/place/place_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "copy/names/own_files.h"

struct deletion {
	struct place *place;
	struct place_finish *end; /* NULL: something is to be replaced; then removal is set */
	struct tree_removal *removal;
	bool dry, backs_up;
	bool failed, too_many;
	struct lineage lineage;
	char *path; /* from the top of the transfer */
	size_t len, room;
};

/* A directory that is being emptied. */
struct level {
	struct level *up;
	dev_t dev;
	ino_t ino;
	char **names; /* of directories in it */
	size_t count, room, next;
	size_t len; /* of the path to the directory that it is in */
	bool stays; /* something in it was not deleted */
	bool loosened; /* its mode was widened for the deletion */
	mode_t mode_to_restore;
	char name[];
};

/* ---- paths, reports and counts -------------------------------------------------------------- */

/* Reports this thread's failure.  Returns true: the entry stays. */
static bool report_not_deleted(struct deletion *d, enum event_what what)
{
	struct failure why;

	d->failed = true;
	if (d->end) {
		why = *failed();
		d->end->on_deleted(d->end->ctx, what, d->path ? d->path : "", &why);
	}
	return true;
}

/* Appends a name to the path.  *len: for path_pop().  -1: the failure was reported. */
static int path_push(struct deletion *d, const char *name, size_t *len)
{
	*len = d->len;
	if (ARRAY_ROOM(d->path, d->len, d->room, strlen(name) + 2)) {
		fail_as(OUT_MEMORY, "delete %s%s%s: %m", d->len > 0 ? d->path : "",
			d->len > 0 ? "/" : "", name);
		report_not_deleted(d, EVENT_FILE);
		return -1;
	}
	if (d->len > 0)
		d->path[d->len++] = '/';
	strcpy(d->path + d->len, name);
	d->len += strlen(name);
	return 0;
}

static void path_pop(struct deletion *d, size_t len)
{
	d->len = len;
	if (d->path)
		d->path[len] = '\0';
}

static void report_deleted(struct deletion *d, enum event_what what)
{
	const struct place_opts *o = &d->place->opts;

	if (d->end)
		d->end->on_deleted(d->end->ctx, what, d->path, NULL);
	else if (!d->removal->silent && o->on_cleared)
		o->on_cleared(o->ctx, what, d->path);
}

/* Counts before the deletion, because several lanes delete at the same time.  False: --max-delete
 * allows no more, or the run was stopped. */
static bool count_deletion(struct deletion *d)
{
	struct place *p = d->place;
	uint64_t ahead = 0;

	if (place_stopped(p))
		return false;
	if (d->removal && d->removal->reserved > 0) {
		d->removal->reserved--;
		return true;
	}
	if (d->removal && d->removal->silent)
		ahead = d->removal->count++;
	else if (atomic_fetch_add(&p->deleted, 1) < p->rules->max_delete)
		return true;
	else
		atomic_fetch_sub(&p->deleted, 1);
	d->too_many = atomic_load(&p->deleted) + ahead >= p->rules->max_delete;
	if (d->too_many)
		atomic_store(&p->too_many, true);
	return !d->too_many;
}

static bool uncount_deletion(struct deletion *d, enum event_what what)
{
	if (!d->removal || !d->removal->silent)
		atomic_fetch_sub(&d->place->deleted, 1);
	return report_not_deleted(d, what);
}

/* Files of a source that were not copied (--max-size, -u) would be lost. */
static bool refuse_source(struct deletion *d, const struct stat *st)
{
	if (!place_is_source(d->place, st))
		return false;
	fail("delete %s: it is a source of the copy", d->path);
	return report_not_deleted(d, change_event_of(st->st_mode));
}

static bool is_protected(struct deletion *d, const char *name, const struct stat *st)
{
	const struct rules *r = d->place->rules;
	bool dir = S_ISDIR(st->st_mode);

	if (dir &&
	    (backup_is_in(&d->lineage, st) || (d->removal && backup_dir_is_target(d->place, st))))
		return true;
	/* A backup may be one that this run made.  In a directory that is replaced, backups are
	 * deleted with it; the directory's own backup has them. */
	if (!d->removal && backup_is(d->place, name))
		return true;
	if (own_files_has(st))
		return true;
	return (!r->delete_excluded && filter_excludes(r->filter, d->path, dir)) ||
	       refuse_source(d, st);
}

/* Is it rehearsed whether everything can be deleted? */
static bool rehearses_rights(const struct deletion *d)
{
	return d->removal && d->removal->silent && !d->removal->keeps && !d->place->rules->dry_run;
}

/* ---- one entry ------------------------------------------------------------------------------ */

/* The last component of the path is name. */
static int back_up_entry(struct deletion *d, int dirfd, const char *name)
{
	size_t cut = d->len - strlen(name);
	char *dir = strndup(d->path, cut > 0 ? cut - 1 : 0);
	int ret;

	if (!dir)
		return fail_as(OUT_MEMORY, "back up %s: %m", name);
	ret = backup_make(d->place, dirfd, name, dir, true);
	free(dir);
	return ret;
}

/* Backups are not backed up. */
static bool gets_backup(const struct deletion *d, const char *name)
{
	return d->backs_up && !backup_is(d->place, name);
}

/* Stats name in dirfd; the path ends with it.  1; 0: it does not exist; -1: the failure was
 * reported. */
static int stat_entry(struct deletion *d, int dirfd, const char *name, struct stat *st)
{
	if (fstatat(dirfd, name, st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	if (errno == ENOENT)
		return 0;
	fail("stat %s: %m", d->path);
	report_not_deleted(d, EVENT_FILE);
	return -1;
}

/* Deletes the temporary (st) of a run that has ended.  True: it stays, because it is in use or
 * belongs to another user. */
static bool delete_temporary(struct deletion *d, int dirfd, const char *name, struct stat *st)
{
	uid_t uid = d->place->uid;

	if (d->dry)
		return rehearses_rights(d) && uid != 0 && uid != st->st_uid;
	temporary_sweep(dirfd, name);
	return stat_entry(d, dirfd, name, st) != 0;
}

/* Deletes an entry that is no directory.  True: it stays. */
static bool delete_plain(struct deletion *d, int dirfd, const char *name, struct stat *st)
{
	bool backup = gets_backup(d, name), temporary = temporary_is(name);

	if (!temporary && is_protected(d, name, st))
		return true;
	if (rehearses_rights(d) && rights_check_entry(d->place, dirfd, name, st)) {
		fail("delete %s: %m", d->path);
		return report_not_deleted(d, change_event_of(st->st_mode));
	}
	if (temporary)
		return delete_temporary(d, dirfd, name, st);
	if (!count_deletion(d))
		return true;
	if (!d->dry && backup && back_up_entry(d, dirfd, name))
		return uncount_deletion(d, change_event_of(st->st_mode));
	if (!d->dry && !backup && unlinkat(dirfd, name, 0) && errno != ENOENT) {
		fail("delete %s: %m", d->path);
		return uncount_deletion(d, change_event_of(st->st_mode));
	}
	report_deleted(d, change_event_of(st->st_mode));
	/* Without --backup-dir the directory now contains the backup. */
	return backup && !*d->place->backup_dir;
}

/* Deletes the empty directory name.  replaced: something else takes its name; only that is reported
 * and counted. */
static bool delete_empty(struct deletion *d, int dirfd, const char *name, bool replaced)
{
	if (!replaced && !count_deletion(d))
		return true;
	if (!d->dry && unlinkat(dirfd, name, AT_REMOVEDIR) && errno != ENOENT) {
		fail("delete directory %s: %m", d->path);
		return replaced ? report_not_deleted(d, EVENT_DIR) : uncount_deletion(d, EVENT_DIR);
	}
	if (!replaced)
		report_deleted(d, EVENT_DIR);
	return false;
}

/* ---- whole directories --------------------------------------------------------------------- */

static void level_free(struct level *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->names[i]);
	free(l->names);
	free(l);
}

static int add_level_name(struct level *l, const char *name)
{
	if (ARRAY_ROOM(l->names, l->count, l->room, 1) || !(l->names[l->count] = strdup(name)))
		return -1;
	l->count++;
	return 0;
}

/* Lists fd before anything in it is deleted.  left: only the names that none of these directories
 * has; NULL: all. */
static int list_entries(struct level *l, int fd, struct place_dir *const *left, size_t count)
{
	int in = dir_reopen(fd), ret = -1;
	DIR *dir = in < 0 ? NULL : fdopendir(in);
	struct dirent *e;
	int err;

	if (!dir) {
		err = errno;
		close_fd(in);
		errno = err;
		return -1;
	}
	while ((errno = 0, e = readdir(dir)) != NULL) {
		bool listed = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;

		for (size_t i = 0; left && listed && i < count; i++)
			listed = dir_has_left(left[i], e->d_name);
		if (listed && add_level_name(l, e->d_name))
			break;
	}
	err = errno;
	if (!e && err == 0)
		ret = 0;
	closedir(dir);
	errno = err;
	return ret;
}

/* Deletes all but directories.  The names of these stay in l. */
static void delete_files(struct deletion *d, struct level *l, int fd, bool markers)
{
	size_t n = 0, len;
	struct stat st;

	for (size_t i = 0; i < l->count; i++) {
		char *name = l->names[i];
		int exists = path_push(d, name, &len) ? -1 : stat_entry(d, fd, name, &st);

		if (exists < 0)
			l->stays = true;
		else if (exists > 0 && S_ISDIR(st.st_mode))
			l->names[n++] = name;
		else if (exists > 0 && (markers || !temporary_is_marker(name)))
			l->stays |= delete_plain(d, fd, name, &st);
		path_pop(d, len);
		if (n == 0 || l->names[n - 1] != name)
			free(name);
	}
	l->count = n;
}

/* Listing failed with errno in a rehearsal.  Would it succeed once loosen_deleted_dir() has set the
 * mode? */
static bool may_be_loosened(const struct deletion *d, const struct stat *st)
{
	return d->dry && errno == EACCES && st->st_uid == d->place->uid;
}

/* Filters do not protect a directory that is itself to be replaced, because the source has its
 * name. */
static bool is_dir_protected(struct deletion *d, const struct level *up, const char *name,
			     const struct stat *st)
{
	return d->removal && !up
		       ? backup_is_in(&d->lineage, st) || backup_dir_is_target(d->place, st) ||
				 refuse_source(d, st)
		       : is_protected(d, name, st);
}

/* What is mounted below a directory is not part of the tree, and stays.  With --one-file-system the
 * user expects that.  False: the directory stays; if that is a failure, it was reported. */
static bool may_empty(struct deletion *d, int in, int fd, const char *name, const struct stat *st)
{
	struct stat above;
	bool renamed = d->removal && d->removal->keeps;
	int mount = fstat(in, &above) ? -1 : renamed ? 0 : rights_is_mount(fd);

	if (mount == 0 && st->st_dev != above.st_dev)
		mount = 1;
	if (mount > 0 && d->place->rules->one_file_system)
		return false;
	if (mount > 0)
		fail("delete directory %s: something is mounted on it", d->path);
	else if (mount < 0 || (rehearses_rights(d) && rights_check_entry(d->place, in, name, st)))
		fail("delete directory %s: %m", d->path);
	else
		return true;
	report_not_deleted(d, EVENT_DIR);
	return false;
}

/* Enters the directory name of *fd, and deletes the files in it.  The path ends with name.  *fd
 * becomes its descriptor; the old one is closed if up is set.  NULL: the directory stays. */
static struct level *enter_level(struct deletion *d, struct level *up, int *fd, const char *name,
				 size_t len)
{
	struct level *l;
	struct stat st;
	int sub = dir_open(*fd, name, &st);

	if (sub < 0) {
		fail("open directory %s: %m", d->path);
		report_not_deleted(d, EVENT_DIR);
		close_fd(sub);
		return NULL;
	}
	l = calloc(1, sizeof *l + strlen(name) + 1);
	if (!l) {
		fail_as(OUT_MEMORY, "delete directory %s: %m", d->path);
		report_not_deleted(d, EVENT_DIR);
		close_fd(sub);
		return NULL;
	}
	if (is_dir_protected(d, up, name, &st) || !may_empty(d, *fd, sub, name, &st)) {
		close_fd(sub);
		free(l);
		return NULL;
	}
	strcpy(l->name, name);
	l->up = up;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	l->len = len;
	l->mode_to_restore = st.st_mode & 07777;
	l->loosened = !d->dry && rights_loosen(d->place, &sub, &st) > 0;
	if (list_entries(l, sub, NULL, 0) && !may_be_loosened(d, &st)) {
		fail("list directory %s: %m", d->path);
		l->stays = report_not_deleted(d, EVENT_DIR);
	} else if (l->count > 0 && rehearses_rights(d) && rights_check_dir(d->place, sub, &st)) {
		fail("delete from directory %s: %m", d->path);
		l->stays = report_not_deleted(d, EVENT_DIR);
	}
	delete_files(d, l, sub, true);
	if (up)
		close_fd(*fd);
	*fd = sub;
	return l;
}

/* *fd is l's descriptor, and becomes that of l->up; -1 if there is none. */
static int leave_level(struct deletion *d, const struct level *l, int *fd)
{
	int in = l->up ? RETRIED(openat(*fd, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))
		       : -1;
	struct stat st;
	int ret = 0;

	if (l->up && (in < 0 || fstat(in, &st)))
		ret = fail("delete directory %s: %m", d->path);
	else if (l->up && (st.st_dev != l->up->dev || st.st_ino != l->up->ino))
		ret = fail("delete directory %s: another process moved it", d->path);
	if (ret)
		report_not_deleted(d, EVENT_DIR);
	if (l->loosened && (l->stays || ret) && metadata_chmod(d->place, *fd, l->mode_to_restore)) {
		fail("set mode of %s: %m", d->path);
		report_not_deleted(d, EVENT_DIR);
	}
	close_fd(*fd);
	*fd = in;
	return ret;
}

static struct level *enter_next_level(struct deletion *d, struct level *l, int *fd)
{
	struct level *sub = NULL;
	size_t len;

	while (!sub && l->next < l->count && !place_stopped(d->place) &&
	       (d->removal || !d->too_many)) {
		char *name = l->names[l->next++];

		if (path_push(d, name, &len) == 0)
			sub = enter_level(d, l, fd, name, len);
		if (!sub) {
			l->stays = true;
			path_pop(d, len);
		}
	}
	l->stays |= !sub && l->next < l->count;
	return sub;
}

/* Deletes the directory name in dirfd.  The path ends with name, which is removed from it.  True:
 * the directory stays. */
static bool delete_dir(struct deletion *d, int dirfd, const char *name, size_t len)
{
	int fd = dirfd;
	struct level *l = enter_level(d, NULL, &fd, name, len), *sub, *up;
	bool stays = l == NULL;

	while (l) {
		sub = enter_next_level(d, l, &fd);
		if (sub) {
			l = sub;
			continue;
		}
		up = l->up;
		if (leave_level(d, l, &fd)) {
			/* The rest of the tree cannot be reached any more. */
			for (; l; l = up) {
				up = l->up;
				level_free(l);
			}
			stays = true;
			break;
		}
		stays = l->stays || delete_empty(d, up ? fd : dirfd, l->name, d->removal && !up);
		path_pop(d, l->len);
		level_free(l);
		if (up)
			up->stays |= stays;
		l = up;
	}
	path_pop(d, len);
	return stays;
}

/* ---- what the source lacks ------------------------------------------------------------------ */

static void delete_dirs(struct deletion *d, struct level *l, int fd)
{
	for (size_t i = 0; i < l->count && !place_stopped(d->place); i++) {
		struct stat st;
		size_t len;

		if (path_push(d, l->names[i], &len) || stat_entry(d, fd, l->names[i], &st) <= 0 ||
		    is_protected(d, l->names[i], &st)) {
			path_pop(d, len);
			continue;
		}
		/* Only what is in it tells whether --max-delete keeps it. */
		d->failed = d->too_many = false;
		if (delete_dir(d, fd, l->names[i], len) && !d->failed && !d->too_many)
			log_warn("cannot delete directory %s%s%s: something in it is protected",
				 d->path, len > 0 ? "/" : "", l->names[i]);
	}
}

/* Sources whose contents go into the target announce names with KEEP.  The names of other sources,
 * which go there too, are in no KEEP. */
static void keep_asked_names(const struct place *p, const struct place_finish *e, struct level *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->count; i++) {
		if (taken_has(&p->claimed, l->names[i]) ||
		    (e->is_asked && e->is_asked(e->ctx, l->names[i])))
			free(l->names[i]);
		else
			l->names[n++] = l->names[i];
	}
	l->count = n;
}

static void delete_left_entries(struct deletion *d, struct place_dir *const *same, size_t count,
				int fd)
{
	struct level *l = calloc(1, sizeof *l + 1);
	int err = l ? dirs_keep_aliases(same, count, fd) : ENOMEM;

	errno = err;
	if (err || list_entries(l, fd, same, count)) {
		fail("list directory %s: %m", d->len > 0 ? d->path : d->place->dst.shown);
		report_not_deleted(d, EVENT_DIR);
	} else {
		if (same[0]->is_target)
			keep_asked_names(d->place, d->end, l);
		delete_files(d, l, fd, false);
		delete_dirs(d, l, fd);
	}
	if (l)
		level_free(l);
}

void delete_left(struct place_dir *const *same, size_t count, struct place_finish *e)
{
	struct place *p = same[0]->place;
	struct failure why;
	struct deletion d = {
		.place = p,
		.end = e,
		.dry = p->rules->dry_run,
		.backs_up = place_backs_up(p),
		.path = place_whole_path(same[0]),
	};
	int fd;

	if (!d.path) {
		why = *failed();
		e->on_deleted(e->ctx, EVENT_DIR, same[0]->name, &why);
		return;
	}
	d.len = strlen(d.path);
	d.room = d.len + 1;
	fd = backup_lineage(p, d.path, &d.lineage) ? -1 : dir_use(same[0]);
	if (fd < 0) {
		report_not_deleted(&d, EVENT_DIR);
	} else {
		delete_left_entries(&d, same, count, fd);
		dir_release(same[0]);
	}
	free(d.path);
}

int delete_tree(struct place *p, int dirfd, const char *dir, const char *name,
		struct tree_removal *r)
{
	struct deletion d = {
		.place = p,
		.removal = r,
		.dry = p->rules->dry_run || r->rehearsed,
		.backs_up = r->backs_up,
	};
	bool stays;

	r->count = 0;
	if (path_push(&d, dir, &(size_t){0}) || path_push(&d, name, &(size_t){0})) {
		errno = ENOMEM;
		fail_as(OUT_MEMORY, "delete %s%s%s: %m", dir, *dir ? "/" : "", name);
	} else if (backup_lineage(p, d.path, &d.lineage)) {
		d.failed = true;
	}
	stays = d.failed || delete_dir(&d, dirfd, name, 0);
	free(d.path);
	r->too_many = d.too_many;
	if (d.failed || place_stopped(p))
		return -1;
	return stays ? 1 : 0;
}
