/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A new directory has its mode as soon as it is made, so a killed run leaves directories as they
 * stay if no metadata was asked for.  With --perms and the like the next run sets what they ask
 * for, as for any existing directory.  A mode never means anything else.
 */

#include "copy/names/name.h"
#include "copy/names/own_files.h"
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/fail.h"
#include "copy/io/floor.h"
#include "base/io.h"

enum { TRIES = 8 }; /* if other processes keep replacing the name */

static const char *format_dir_path(const struct place_dir *d, char to[static SHOWN_ROOM])
{
	struct place_entry s = {.place = d->place, .dir = d->up, .name = d->name};

	/* A directory whose contents are copied has no name of its own. */
	if (!d->up && !*d->name)
		s.name = d->place->dst.name;
	return entry_shown(&s, to);
}

/* Is st what mkdirat() has just made for d?  A user who may write to the parent may have replaced
 * it. A file system may also give a new directory another owner, or rights that were not asked for.
 * Such a directory is treated like one that existed before. */
static bool is_as_made(const struct place_dir *d, const struct stat *st)
{
	mode_t more = st->st_mode & 07777 & ~(metadata_first_mode(d) | S_ISGID);

	return st->st_uid == d->place->uid && !more && st->st_nlink <= 2;
}

/* Of a directory that several sources have, the attributes of the first one count. */
static void compare_dir(struct place_dir *d, const struct stat *st, struct change *c)
{
	struct metadata m;

	metadata_want_dir(d, &m);
	if (!c->missing && !c->type && !(d->flags & DIR_AGAIN) && dir_needs_metadata(d))
		metadata_compare(d->place, &m, st, c);
}

/* Records what d is: made just now, or existing. */
static int record_dir_state(struct place_dir *d, int *fd, struct stat *st, bool made,
			    struct change *c)
{
	char name[SHOWN_ROOM];
	int loosened;

	if (backup_dir_add_target(d->place, d->name, st))
		return -1;
	d->held.dev = st->st_dev;
	d->held.ino = st->st_ino;
	d->mode_to_restore = st->st_mode & 07777;
	d->fresh = made && is_as_made(d, st);
	atomic_init(&d->unswept, !d->fresh);
	compare_dir(d, st, c);
	if (d->fresh) {
		metadata_begin_dir(d, *fd, st);
		return 0;
	}
	loosened = d->place->rules->dry_run ? 0 : rights_loosen(d->place, fd, st);
	if (loosened < 0)
		return fail("set mode u+rwx of directory %s: %m", format_dir_path(d, name));
	d->loosened = loosened > 0;
	return 0;
}

/* Removes or backs up the non-directory that has the name of d. */
static int clear_dir_name(struct place_dir *d, int in, const char *name)
{
	struct place *p = d->place;
	char path[SHOWN_ROOM];
	struct stat st;
	char *dir;
	int ret;

	if (fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && own_files_has(&st))
		return fail("replace %s: this command writes it", format_dir_path(d, path));
	if (!place_backs_up(p)) {
		ret = unlinkat(in, name, 0);
		return ret && errno != ENOENT && errno != EISDIR
			       ? fail("replace %s: %m", format_dir_path(d, path))
			       : 0;
	}
	dir = place_whole_path(d->up);
	ret = dir ? backup_make(p, in, name, dir, true) : -1;
	free(dir);
	return ret;
}

static int sync_dir_parent(const struct place_dir *d, int in)
{
	char name[SHOWN_ROOM];

	if (!d->place->rules->fsync || dir_sync(in) == 0)
		return 0;
	return fail("fsync the directory of %s: %m", format_dir_path(d, name));
}

/* Something exists under the name of d; st is set if it is a directory.  Fails if it is another
 * entry of the source, whose name folds to the same.  Preserves errno when it returns 0. */
static int check_dir_folding(const struct place_dir *d, int in, const char *name,
			     const struct stat *st)
{
	struct place *p = d->place;
	char other[NAME_MAX + 1], path[SHOWN_ROOM];
	bool fresh = (d->up ? d->up : p->top)->fresh;
	int err = errno;
	bool folded = !p->rules->dry_run && (fresh || (st && place_fills_dir(p, st))) &&
		      name_is_folded(in, name, other);

	errno = err;
	if (!folded)
		return 0;
	return fail(
		"make directory %s: the file system does not distinguish this name from %s, which this run "
		"created",
		format_dir_path(d, path), *other ? other : "another name");
}

/* Opens the directory `name' in `in'; makes it if it is missing.  *fd is -1 in a dry run that would
 * make it.  1: d is left out. */
static int open_or_make_dir(struct place_dir *d, int in, const char *name, int *fd,
			    struct change *c)
{
	bool dry = d->place->rules->dry_run, made = false;
	char path[SHOWN_ROOM];
	struct stat st;

	if (backup_spare(d->place, in, name) || backup_dir_check_name(d->place, in, name) ||
	    place_check_name(d->place, d->up ? d->up : d->place->top, in, name))
		return -1;
	for (int i = 0; i < TRIES; i++) {
		*fd = dir_open(in, name, &st);
		if (!made && (*fd >= 0 || errno == ENOTDIR || errno == ELOOP) &&
		    check_dir_folding(d, in, name, *fd < 0 ? NULL : &st)) {
			close_fd(*fd);
			return -1;
		}
		if (*fd >= 0) {
			c->missing = made && !c->type;
			if (!d->place->rules->perms)
				d->umask = metadata_umask(d->place, d->up, in);
			if (record_dir_state(d, fd, &st, made, c) == 0)
				return made ? sync_dir_parent(d, in) : 0;
			close_fd(*fd);
			return -1;
		}
		if (errno == ENOTDIR || errno == ELOOP)
			c->type = true;
		else if (errno == ENOENT)
			c->missing = !c->type;
		else
			return fail("open directory %s: %m", format_dir_path(d, path));
		if (c->type ? d->place->rules->ignore_existing : d->place->rules->existing)
			return 1;
		if (dry) {
			d->missing = true;
			return 0;
		}
		if (errno != ENOENT && clear_dir_name(d, in, name))
			return -1;
		if (floor_check(in, 0))
			return floor_fail(format_dir_path(d, path));
		made = mkdirat(in, name, metadata_first_mode(d)) == 0;
		if (!made && errno != EEXIST)
			return fail("make directory %s: %m", format_dir_path(d, path));
	}
	return fail("make directory %s: another process keeps replacing it",
		    format_dir_path(d, path));
}

/* ---- the target itself ------------------------------------------------------------------- */

/* Makes the directory fd the target. */
static int set_target_dir(struct place *p, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail("open directory %s: %m", p->dst.shown);
	if (backup_dir_add_target(p, p->dst.shown, &st))
		return -1;
	pthread_mutex_lock(&p->lock);
	p->top->held.fd = fd;
	p->top->held.dev = st.st_dev;
	p->top->held.ino = st.st_ino;
	atomic_store(&p->top->inner_umask, 0);
	p->is_dir = true;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* Makes DST, unless another process has made it meanwhile.  *made: this run made it. */
static int make_target_dir(struct place *p, const char *marker, mode_t mode, bool *made)
{
	const struct dst *dst = &p->dst;
	struct stat st;
	int fd = -1, err = 0;

	if (fstatat(dst->dirfd, dst->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		err = EEXIST;
	else if (floor_check(dst->dirfd, 0))
		return floor_fail(dst->shown);
	else if (*marker)
		fd = marker_make_dir(p, dst->dirfd, dst->name, marker, mode);
	else if (mkdirat(dst->dirfd, dst->name, mode) == 0)
		fd = dir_open(dst->dirfd, dst->name, &st);
	if (fd < 0 && err == 0)
		err = errno;
	*made = fd >= 0;
	if (err == EEXIST)
		fd = dir_open(dst->dirfd, dst->name, &st);
	else
		errno = err;
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return fail("%s is not a directory", dst->shown);
	if (fd < 0)
		return fail("make directory %s: %m", dst->shown);
	if (set_target_dir(p, fd))
		return -1;
	p->top->fresh = *made;
	return *made ? sync_dir_parent(p->top, dst->dirfd) : 0;
}

static bool is_dst_absent(const struct dst *s)
{
	struct stat st;

	return s->dir_missing || fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW);
}

/* A pattern at the source matched several files, so DST must be a directory after all. */
static int make_target_for_many(struct place *p)
{
	bool absent = is_dst_absent(&p->dst), made;

	if (p->dst.by_path || p->rules->no_target_dir || (!absent && p->rules->dry_run))
		return fail("%s is not a directory", p->dst.shown);
	if (absent && !p->rules->mkpath)
		return dst_fail_needs_dir(&p->opts, &p->dst);
	if (!p->rules->dry_run)
		return make_target_dir(p, "", 0777, &made);
	pthread_mutex_lock(&p->lock);
	p->top->missing = true;
	p->is_dir = true;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

int place_need_dir(struct place *p)
{
	int ret;

	pthread_mutex_lock(&p->target_lock);
	ret = p->is_dir ? 0 : make_target_for_many(p);
	pthread_mutex_unlock(&p->target_lock);
	return ret;
}

/* Makes d stand for the target itself. */
static int adopt_target(struct place_dir *d, bool made, struct change *c)
{
	struct stat st;
	int fd, ret;

	d->is_target = true;
	d->umask = xattrs_umask(d->place->dst.dirfd, d->place->umask);
	c->missing = made;
	fd = fcntl(d->place->top->held.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fstat(fd, &st))
		ret = fail("open directory %s: %m", d->place->dst.shown);
	else
		ret = record_dir_state(d, &fd, &st, made, c);
	close_fd(fd);
	return ret;
}

/* In a dry run the directory is not made. */
static int mark_missing(struct place_dir *d, struct change *c)
{
	c->missing = true;
	d->missing = true;
	return 0;
}

/* Opens or makes the directory r, which has no parent: it is the target, or in the target.  *fd is
 * -1 if it is the target.  1: it is left out. */
static int settle_top_dir(struct place_dir *d, const struct record_dir *r, int *fd,
			  struct change *c)
{
	struct place *p = d->place;
	bool contents = r->flags & DIR_CONTENTS, made = false;
	bool into = contents || p->rules->relative || p->opts.many, absent;
	char marker[OWN_NAME_ROOM] = "";

	if (p->dst.by_path)
		return fail("%s is not a directory", p->dst.shown);
	if (!p->is_dir && !p->opts.many && (r->flags & DIR_MANY) && make_target_for_many(p))
		return -1;
	if (!p->rules->relative && !p->opts.many)
		marker_name(p, r->want, r->name, marker);
	absent = !p->is_dir && is_dst_absent(&p->dst);
	/* In a dry run, a target that --mkpath would have made counts as existing for the contents
	 * of a source. */
	if (p->rules->existing && (absent || (p->top->missing && !contents)))
		return 1;
	if (p->rules->dry_run && (absent || p->top->missing))
		return mark_missing(d, c);
	if (!p->is_dir && make_target_dir(p, into ? "" : marker,
					  into && !contents ? 0777 : metadata_first_mode(d), &made))
		return -1;
	/* A directory whose contents are copied goes into the target in any case.  With the marker
	 * of an interrupted run, this run also removes that marker at the end. */
	if (*marker && ((made && !into) || marker_is_in(p, p->top->held.fd, marker))) {
		memcpy(p->marker, marker, sizeof marker);
		return adopt_target(d, made, c);
	}
	if (contents)
		return adopt_target(d, made, c);
	return place_claim(p, d->name) ? -1 : open_or_make_dir(d, p->top->held.fd, d->name, fd, c);
}

/* ---- all directories ----------------------------------------------------------------------- */

static int resolve_dir(struct place_dir *d, const struct record_dir *r, int *fd, struct change *c)
{
	struct place *p = d->place;
	int in, ret;

	if (!d->up) {
		pthread_mutex_lock(&p->target_lock);
		ret = settle_top_dir(d, r, fd, c);
		pthread_mutex_unlock(&p->target_lock);
		return ret;
	}
	if (d->up->missing)
		return d->place->rules->existing ? 1 : mark_missing(d, c);
	if (dir_add_source_name(d->up, d->name))
		return -1;
	in = dir_use(d->up);
	if (in < 0)
		return -1;
	ret = open_or_make_dir(d, in, d->name, fd, c);
	dir_release(d->up);
	return ret;
}

int place_make_dir(struct place *p, struct place_dir *parent, const struct record_dir *r,
		   struct place_dir **out, struct change *change)
{
	bool contents = r->flags & DIR_CONTENTS;
	char shown[SHOWN_ROOM];
	struct place_dir *d;
	int fd = -1, ret;

	*change = (struct change){.what = EVENT_DIR};
	if (contents ? parent || r->name[0] : !name_is_plain(r->name))
		return fail_as(OUT_PROTOCOL,
			       "the peer sends %s, which is not a valid directory name",
			       place_shown(p, parent, r->name, shown));
	d = dir_new(p, parent, r->name);
	if (!d)
		return fail_as(OUT_MEMORY, "make directory %s: %m",
			       place_shown(p, parent, r->name, shown));
	d->id = r->id;
	d->flags = r->flags;
	if (r->flags & DIR_MOVED)
		atomic_store(&p->completes_move, true);
	d->a = r->a;
	ret = resolve_dir(d, r, &fd, change);
	if (ret) {
		free(d);
		return ret;
	}
	dir_add(d, fd);
	*out = d;
	return 0;
}

void place_dir_unread(struct place_dir *d)
{
	d->unread = true;
}

void place_dir_compare(struct place_dir *d, const struct xattrs *x, struct change *c)
{
	int fd;

	if (d->missing || d->unread || (d->flags & DIR_AGAIN) || !dir_needs_metadata(d))
		return;
	fd = dir_use(d);
	if (fd < 0)
		return;
	metadata_compare_xattrs(d->place, fd, x, c);
	dir_release(d);
}

void place_dir_xattrs(struct place_dir *d, struct xattrs *x)
{
	xattrs_free(d->xattrs);
	place_change_acl(d->place, &d->a, true, x);
	d->xattrs = x;
}
