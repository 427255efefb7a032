/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Deleting what the source has not: names in held directories, and whole directories below them.
 * Of those two descriptors are open at a time, however deep they are: a walk goes down name by name
 * without following symlinks, and up by "..", which must be the directory that it came from.
 */

#include "copy/place_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"

enum { NAMES_FIRST = 16 };

struct deletion {
	struct place *place;
	struct place_end *end; /* NULL: room is made for something, which is not counted */
	bool failed;
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
	bool stays; /* something in it does */
	bool loosened; /* we had not all rights to it, but these: */
	mode_t was;
	char name[];
};

/* ---- paths and words ----------------------------------------------------------------------- */

/* One more name at the end of the path; *len: what path_pop() wants. */
static int path_push(struct deletion *d, const char *name, size_t *len)
{
	size_t need = d->len + strlen(name) + 2;
	char *more;

	*len = d->len;
	if (need > d->room) {
		more = realloc(d->path, 2 * need);
		if (!more)
			return fail_as(OUT_MEMORY, "delete %s: %m", name);
		d->path = more;
		d->room = 2 * need;
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

static enum event_what what_of(const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFDIR:
		return EVENT_DIR;
	case S_IFLNK:
		return EVENT_SYMLINK;
	case S_IFREG:
		return EVENT_FILE;
	}
	return EVENT_NODE;
}

/* With this thread's failure. Returns true: it stays. */
static bool tell_failure(struct deletion *d, enum event_what what)
{
	struct failure why;

	d->failed = true;
	if (d->end) {
		why = *failed();
		d->end->on_deleted(d->end->ctx, what, d->path, &why);
	}
	return true;
}

static void tell(struct deletion *d, enum event_what what)
{
	if (!d->end)
		return;
	d->end->deleted++;
	d->end->on_deleted(d->end->ctx, what, d->path, NULL);
}

static bool may_delete(const struct deletion *d)
{
	if (d->end && d->end->deleted >= d->place->rules->max_delete) {
		d->end->too_many = true;
		return false;
	}
	return !place_stopped(d->place);
}

static bool is_protected(const struct deletion *d, const char *name, const struct stat *st)
{
	const struct rules *r = d->place->rules;
	bool dir = S_ISDIR(st->st_mode);

	if (dir ? backup_is_in(d->place, st) : backup_is(d->place, name))
		return true;
	return !r->delete_excluded && filter_excludes(r->filter, d->path, dir);
}

/* ---- one name ------------------------------------------------------------------------------- */

/* What the path without its last name says. */
static int back_up(struct deletion *d, int dirfd, const char *name)
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

/* No directory; its name is in the path.  True: it stays. */
static bool delete_plain(struct deletion *d, int dirfd, const char *name, const struct stat *st)
{
	struct place *p = d->place;
	bool dry = p->rules->dry_run;

	if (temporary_is(name)) {
		struct stat now;

		if (!dry)
			temporary_sweep(dirfd, name);
		return fstatat(dirfd, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && !dry;
	}
	if (is_protected(d, name, st) || !may_delete(d))
		return true;
	if (!dry && place_backs_up(p) && back_up(d, dirfd, name))
		return tell_failure(d, what_of(st));
	if (!dry && !place_backs_up(p) && unlinkat(dirfd, name, 0) && errno != ENOENT) {
		fail("delete %s: %m", d->path);
		return tell_failure(d, what_of(st));
	}
	tell(d, what_of(st));
	/* Its backup may be right beside it. */
	return place_backs_up(p) && !*p->rules->backup_dir;
}

/* The directory name, which is empty now. */
static bool delete_empty(struct deletion *d, int dirfd, const char *name)
{
	if (!may_delete(d))
		return true;
	if (!d->place->rules->dry_run && unlinkat(dirfd, name, AT_REMOVEDIR) && errno != ENOENT) {
		fail("delete directory %s: %m", d->path);
		return tell_failure(d, EVENT_DIR);
	}
	tell(d, EVENT_DIR);
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

static int add_name(struct level *l, const char *name)
{
	size_t room = l->room ? 2 * l->room : NAMES_FIRST;
	char **more;

	if (l->count == l->room) {
		more = reallocarray(l->names, room, sizeof *more);
		if (!more)
			return -1;
		l->names = more;
		l->room = room;
	}
	l->names[l->count] = strdup(name);
	return l->names[l->count] ? (l->count++, 0) : -1;
}

/* All that is in fd, before anything of it is deleted. left: of these only what all have not;
 * NULL: everything. */
static int list(struct level *l, int fd, struct place_dir *const *left, size_t count)
{
	int in = dir_reopen(fd), ret = -1;
	DIR *dir = in < 0 ? NULL : fdopendir(in);
	struct dirent *e;

	if (!dir) {
		close_fd(in);
		return -1;
	}
	while ((errno = 0, e = readdir(dir)) != NULL) {
		bool all = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;

		for (size_t i = 0; left && all && i < count; i++)
			all = kept_is_left(left[i]->kept, e->d_name);
		if (all && add_name(l, e->d_name))
			break;
	}
	if (!e && errno == 0)
		ret = 0;
	closedir(dir);
	return ret;
}

/* Delete all but directories, of which the names stay in l. */
static void delete_files(struct deletion *d, struct level *l, int fd, bool markers)
{
	size_t n = 0, len;
	struct stat st;

	for (size_t i = 0; i < l->count; i++) {
		char *name = l->names[i];
		bool gone = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0;

		if (!gone && S_ISDIR(st.st_mode)) {
			l->names[n++] = name;
			continue;
		}
		if (!gone && (markers || !temporary_is_marker(name))) {
			l->stays |= path_push(d, name, &len) || delete_plain(d, fd, name, &st);
			path_pop(d, len);
		}
		free(name);
	}
	l->count = n;
}

/* It goes anyway, as far as is known. */
static int loosen(const struct place *p, struct level *l, int fd, const struct stat *st)
{
	int better;

	if (p->rules->dry_run || p->uid == 0 || st->st_uid != p->uid ||
	    (st->st_mode & S_IRWXU) == S_IRWXU)
		return fd;
	l->was = st->st_mode & 07777;
	l->loosened = metadata_chmod(p, fd, l->was | S_IRWXU) == 0;
	better = dir_reopen(fd);
	if (better < 0)
		return fd;
	close_fd(fd);
	return better;
}

/* Into the directory name of *fd, which is not to be closed if there is no up; its name is in the
 * path.  NULL: it stays. */
static struct level *descend(struct deletion *d, struct level *up, int *fd, const char *name,
			     size_t len)
{
	struct level *l;
	struct stat st, above;
	int sub = dir_open(*fd, name, &st);

	if (sub < 0 || fstat(*fd, &above)) {
		fail("open directory %s: %m", d->path);
		tell_failure(d, EVENT_DIR);
		close_fd(sub);
		return NULL;
	}
	l = calloc(1, sizeof *l + strlen(name) + 1);
	/* What is mounted there is nobody's to delete. */
	if (!l || is_protected(d, name, &st) || st.st_dev != above.st_dev) {
		close_fd(sub);
		free(l);
		return NULL;
	}
	strcpy(l->name, name);
	l->up = up;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	l->len = len;
	sub = loosen(d->place, l, sub, &st);
	if (list(l, sub, NULL, 0)) {
		fail("list directory %s: %m", d->path);
		l->stays = tell_failure(d, EVENT_DIR);
	}
	delete_files(d, l, sub, true);
	if (up)
		close_fd(*fd);
	*fd = sub;
	return l;
}

/* *fd is that of l, and becomes that of l->up, if there is one. */
static int ascend(struct deletion *d, const struct level *l, int *fd)
{
	int in = l->up ? openat(*fd, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	struct stat st;
	int ret = 0;

	if (l->up && (in < 0 || fstat(in, &st)))
		ret = fail("delete directory %s: %m", d->path);
	else if (l->up && (st.st_dev != l->up->dev || st.st_ino != l->up->ino))
		ret = fail("delete directory %s: it was moved meanwhile", d->path);
	if (ret)
		tell_failure(d, EVENT_DIR);
	if (l->loosened && (l->stays || ret))
		metadata_chmod(d->place, *fd, l->was);
	close_fd(*fd);
	*fd = in;
	return ret;
}

static struct level *next_below(struct deletion *d, struct level *l, int *fd)
{
	struct level *sub = NULL;
	size_t len;

	while (!sub && l->next < l->count && !place_stopped(d->place)) {
		char *name = l->names[l->next++];

		if (path_push(d, name, &len) == 0)
			sub = descend(d, l, fd, name, len);
		if (!sub) {
			l->stays = true;
			path_pop(d, len);
		}
	}
	l->stays |= !sub && l->next < l->count;
	return sub;
}

/* The directory name in dirfd, its name in the path, which is one shorter then.  True: it stays. */
static bool delete_dir(struct deletion *d, int dirfd, const char *name, size_t len)
{
	int fd = dirfd;
	struct level *l = descend(d, NULL, &fd, name, len), *sub, *up;
	bool stays = l == NULL;

	while (l) {
		sub = next_below(d, l, &fd);
		if (sub) {
			l = sub;
			continue;
		}
		up = l->up;
		if (ascend(d, l, &fd)) {
			/* Nothing more of it can be reached. */
			for (; l; l = up) {
				up = l->up;
				level_free(l);
			}
			stays = true;
			break;
		}
		stays = l->stays || delete_empty(d, up ? fd : dirfd, l->name);
		path_pop(d, l->len);
		level_free(l);
		if (up)
			up->stays |= stays;
		l = up;
	}
	path_pop(d, len);
	return stays;
}

/* ---- for all -------------------------------------------------------------------------------- */

static void delete_dirs(struct deletion *d, struct level *l, int fd)
{
	for (size_t i = 0; i < l->count && !place_stopped(d->place); i++) {
		struct stat st;
		size_t len;

		if (path_push(d, l->names[i], &len))
			return;
		if (fstatat(fd, l->names[i], &st, AT_SYMLINK_NOFOLLOW) ||
		    is_protected(d, l->names[i], &st) || !may_delete(d)) {
			path_pop(d, len);
			continue;
		}
		d->failed = false;
		if (delete_dir(d, fd, l->names[i], len) && !d->failed && !d->end->too_many)
			log_warn("%s%s%s stays: something in it is protected", d->path,
				 len > 0 ? "/" : "", l->names[i]);
	}
}

/* Into the target go what is in some sources and what others are called: these are in no KEEP. */
static void spare_asked(const struct place_end *e, struct level *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->count; i++) {
		if (e->is_asked(e->ctx, l->names[i]))
			free(l->names[i]);
		else
			l->names[n++] = l->names[i];
	}
	l->count = n;
}

static void delete_left_in(struct deletion *d, struct place_dir *const *same, size_t count, int fd)
{
	struct level *l = calloc(1, sizeof *l + 1);

	if (!l || list(l, fd, same, count)) {
		fail("list directory %s: %m", d->path);
		tell_failure(d, EVENT_DIR);
	} else {
		if (same[0]->is_target && d->end->is_asked)
			spare_asked(d->end, l);
		delete_files(d, l, fd, false);
		delete_dirs(d, l, fd);
	}
	if (l)
		level_free(l);
}

void delete_left(struct place_dir *const *same, size_t count, struct place_end *e)
{
	struct deletion d = {.place = same[0]->place, .end = e, .path = place_whole_path(same[0])};
	int fd;

	if (!d.path)
		return;
	d.len = strlen(d.path);
	d.room = d.len + 1;
	fd = dir_hold(same[0]);
	if (fd < 0) {
		tell_failure(&d, EVENT_DIR);
	} else {
		delete_left_in(&d, same, count, fd);
		dir_release(same[0]);
	}
	free(d.path);
}

/* Room is made while files come, when deletions are not counted yet. */
static bool makes_room(const struct place *p)
{
	return p->rules->max_delete == UINT64_MAX && p->rules->delete;
}

static int not_empty(const struct seat *s)
{
	char shown[SHOWN_ROOM];

	return fail("%s is a directory that is not empty (--delete %s)", seat_shown(s, shown),
		    s->place->rules->delete ? "without --max-delete removes it" : "removes it");
}

int delete_in_the_way(const struct seat *s)
{
	struct deletion d = {.place = s->place};
	char shown[SHOWN_ROOM];
	char *path;
	bool stays;

	if (unlinkat(s->dirfd, s->name, AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTDIR)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return fail("delete directory %s: %m", seat_shown(s, shown));
	if (!makes_room(s->place))
		return not_empty(s);
	if (place_backs_up(s->place))
		return backup_seat(s, true);
	path = place_whole_path(s->in);
	stays = !path || path_push(&d, path, &(size_t){0}) ||
		path_push(&d, s->name, &(size_t){0}) || delete_dir(&d, s->dirfd, s->name, 0);
	free(path);
	free(d.path);
	if (stays && !d.failed)
		fail("%s is a directory, and something in it stays", seat_shown(s, shown));
	return stays ? -1 : 0;
}

int delete_is_allowed(const struct seat *s)
{
	struct level *l;
	struct stat st;
	char shown[SHOWN_ROOM];
	int fd, ret;

	if (makes_room(s->place))
		return 0;
	l = calloc(1, sizeof *l + 1);
	fd = l ? dir_open(s->dirfd, s->name, &st) : -1;
	if (fd < 0 || list(l, fd, NULL, 0))
		ret = fail("list directory %s: %m", seat_shown(s, shown));
	else if (l->count > 0)
		ret = not_empty(s);
	else
		ret = 0;
	close_fd(fd);
	if (l)
		level_free(l);
	return ret;
}
