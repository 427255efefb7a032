/* SPDX-License-Identifier: Apache-2.0 */

/* An entry: one name in a held directory, which something has or is to get.  Whole files get it
 * here, as their last step. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/outlet.h"
#include "copy/names/name.h"
#include "copy/names/own_files.h"

static int check_name(const char *name)
{
	if (name_is_plain(name))
		return 0;
	return fail_as(OUT_PROTOCOL, "the peer sends %s, which is not a valid file name", name);
}

static int open_entry_at_top(struct place *p, const struct record_file *r, struct place_entry *s)
{
	const struct dst *dst = &p->dst;
	bool is_dir;

	if ((r->flags & FILE_MANY) && place_need_dir(p))
		return -1;
	pthread_mutex_lock(&p->lock);
	is_dir = p->is_dir;
	s->dirfd = is_dir ? p->top->held.fd : dst->dirfd;
	pthread_mutex_unlock(&p->lock);
	s->name = is_dir ? r->name : dst->name;
	if (!is_dir)
		return dst->dir_only ? dst_fail_needs_dir(&p->opts, dst) : 0;
	if (p->rules->no_target_dir)
		return fail("%s is a directory, not a file", dst->shown);
	if (!r->name[0])
		return fail("%s is a directory: a stream needs a file name", dst->shown);
	return check_name(r->name) || place_claim(p, r->name) ? -1 : 0;
}

static int open_entry_below(struct place_dir *d, const struct record_file *r, struct place_entry *s)
{
	if (check_name(r->name) || dir_add_source_name(d, r->name))
		return -1;
	if (d->missing)
		return 0;
	s->dirfd = dir_use(d);
	return s->dirfd < 0 ? -1 : 0;
}

int entry_open(struct place *p, struct place_dir *d, const struct record_file *r,
	       struct place_entry *s)
{
	*s = (struct place_entry){.place = p, .dir = d, .dirfd = -1, .name = r->name};
	if (r->flags & FILE_MOVED)
		atomic_store(&p->completes_move, true);
	if (d ? open_entry_below(d, r, s) : open_entry_at_top(p, r, s))
		return -1;
	if (s->dirfd < 0 || (backup_spare(p, s->dirfd, s->name) == 0 &&
			     backup_dir_check_name(p, s->dirfd, s->name) == 0 &&
			     (s->name == p->dst.name ||
			      place_check_name(p, d ? d : p->top, s->dirfd, s->name) == 0)))
		return 0;
	entry_close(s);
	return -1;
}

void entry_close(struct place_entry *s)
{
	if (s->dir && s->dirfd >= 0)
		dir_release(s->dir);
	s->dirfd = -1;
}

/* ---- messages ------------------------------------------------------------------------------ */

/* DST as the user wrote it, and a name in it; cut at its front to fit. */
static void format_dst_path(const struct dst *s, const char *name, char to[static SHOWN_ROOM])
{
	char path[sizeof s->shown + NAME_MAX + 2];
	size_t len = strlen(s->shown), from;
	bool slash = *name && len > 0 && s->shown[len - 1] != '/';

	snprintf(path, sizeof path, "%s%s%s", s->shown, slash ? "/" : "", name);
	len = strlen(path);
	from = len < SHOWN_ROOM ? 0 : len - SHOWN_ROOM + 1;
	memcpy(to, path + from, len - from + 1);
}

const char *entry_shown(const struct place_entry *s, char to[static SHOWN_ROOM])
{
	const struct dst *dst = &s->place->dst;
	bool is_target = s->name == dst->name || dst->by_path;

	if (s->dir)
		place_path(s->dir, s->name, to, SHOWN_ROOM);
	else
		format_dst_path(dst, is_target ? "" : s->name, to);
	return to;
}

const char *place_shown(struct place *p, struct place_dir *d, const char *name,
			char to[static SHOWN_ROOM])
{
	struct place_entry s = {.place = p, .dir = d, .name = name};

	pthread_mutex_lock(&p->lock);
	if (!d && !p->is_dir)
		s.name = p->dst.name;
	pthread_mutex_unlock(&p->lock);
	return entry_shown(&s, to);
}

int entry_fail(const struct place_entry *s, const char *what)
{
	char shown[SHOWN_ROOM];

	return fail("%s %s: %m", what, entry_shown(s, shown));
}

char *entry_whole_dir(const struct place_entry *s)
{
	char shown[SHOWN_ROOM], *path = place_whole_path(s->dir);

	/* So that each of several files has a message of its own. */
	if (!path) {
		errno = ENOMEM;
		fail_as(OUT_MEMORY, "allocate the path of %s: %m", entry_shown(s, shown));
	}
	return path;
}

int entry_sync_dir(const struct place_entry *s)
{
	if (!s->place->rules->fsync || dir_sync(s->dirfd) == 0)
		return 0;
	return entry_fail(s, "fsync the directory of");
}

int entry_check_replacing(const struct place_entry *s, const struct stat *old)
{
	const struct timespec *start = &s->place->started, *changed = &old->st_ctim;
	/* Some file systems store whole seconds only. */
	bool changed_since = changed->tv_sec > start->tv_sec ||
			     (changed->tv_sec == start->tv_sec &&
			      (changed->tv_nsec >= start->tv_nsec || changed->tv_nsec == 0));
	char shown[SHOWN_ROOM];

	if (own_files_has(old))
		return fail("replace %s: this command writes it", entry_shown(s, shown));
	return changed_since ? entry_check_folding(s) : 0;
}

int entry_look(const struct place_entry *s, struct stat *st)
{
	char shown[SHOWN_ROOM];

	if (s->dirfd < 0)
		return 0;
	if (fstatat(s->dirfd, s->name, st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : fail("stat %s: %m", entry_shown(s, shown));
}

/* ---- leftovers of earlier runs -------------------------------------------------------------- */

static struct place_dir *get_entry_dir(const struct place_entry *s)
{
	return s->dir ? s->dir : s->place->top;
}

void entry_sweep(const struct place_entry *s)
{
	struct place_dir *d = get_entry_dir(s);

	if (!atomic_load_explicit(&d->unswept, memory_order_acquire))
		return;
	pthread_mutex_lock(&s->place->sweep_lock);
	if (atomic_load(&d->unswept))
		temporaries_sweep(s->dirfd, place_is_private(s->place, s->dirfd),
				  &d->has_temporaries);
	atomic_store(&d->unswept, false);
	pthread_mutex_unlock(&s->place->sweep_lock);
}

void entry_forget_leftovers(const struct place_entry *s)
{
	if (s->place->rules->dry_run)
		return;
	entry_sweep(s);
	if (get_entry_dir(s)->has_temporaries)
		temporary_forget(s->dirfd, s->name, s->place->uid);
}

/* ---- new files ------------------------------------------------------------------------------ */

/* A default ACL changes the modes of new files. */
static bool may_have_acl(int dirfd)
{
	return fgetxattr(dirfd, "system.posix_acl_default", NULL, 0) >= 0 ||
	       (errno != ENODATA && errno != EOPNOTSUPP);
}

int entry_stat_new(const struct place_entry *s, int fd, mode_t mode, struct stat *st,
		   bool *predicted)
{
	struct place_dir *d = s->dir;

	*predicted = d && atomic_load_explicit(&d->new_file_owner_known, memory_order_acquire);
	if (*predicted) {
		*st = (struct stat){
			.st_dev = d->held.dev,
			.st_uid = d->new_file_uid,
			.st_gid = d->new_file_gid,
			.st_mode = S_IFREG | (mode & ~s->place->umask),
			.st_nlink = 1,
		};
		return 0;
	}
	if (fstat(fd, st))
		return -1;
	if (!d || !d->fresh || may_have_acl(s->dirfd))
		return 0;
	pthread_mutex_lock(&s->place->lock);
	if (!atomic_load(&d->new_file_owner_known)) {
		d->new_file_uid = st->st_uid;
		d->new_file_gid = st->st_gid;
		atomic_store_explicit(&d->new_file_owner_known, true, memory_order_release);
	}
	pthread_mutex_unlock(&s->place->lock);
	return 0;
}

/* ---- giving a whole file its name ----------------------------------------------------------- */

/* For a file system without RENAME_NOREPLACE. */
static int link_new(const struct place_entry *s, const char *as)
{
	struct stat st;

	if (linkat(s->dirfd, as, s->dirfd, s->name, 0) == 0)
		return unlinkat(s->dirfd, as, 0);
	if (errno == EEXIST || errno == ENOENT)
		return -1;
	if (fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		errno = EEXIST;
		return -1;
	}
	return renameat(s->dirfd, as, s->dirfd, s->name);
}

/* Renames without replacing anything.  -1 with errno, EEXIST: the name exists. */
static int rename_new(const struct place_entry *s, const char *as)
{
	if (syscall(SYS_renameat2, s->dirfd, as, s->dirfd, s->name, RENAME_NOREPLACE) == 0)
		return 0;
	return errno == EINVAL || errno == ENOSYS ? link_new(s, as) : -1;
}

/* -1 with errno; -2 with a failure. */
static int rename_over(const struct place_entry *s, const char *as, bool clears)
{
	if (renameat(s->dirfd, as, s->dirfd, s->name) == 0)
		return 0;
	if (errno != EISDIR || !clears)
		return -1;
	return delete_in_the_way(s) ? -2 : renameat(s->dirfd, as, s->dirfd, s->name);
}

int entry_rename(const struct place_entry *s, const char *as, const struct stat *old, bool clears)
{
	char shown[SHOWN_ROOM];
	int ret;

	if (old && entry_check_replacing(s, old))
		return -1;
	if (place_backs_up(s->place) && old && !S_ISDIR(old->st_mode) &&
	    !backup_is_needless(s, as, old) && backup_make_of_entry(s, false))
		return -1;
	ret = old ? 1 : rename_new(s, as);
	if (ret < 0 && errno == EEXIST) {
		if (entry_check_folding(s))
			return -1;
		ret = 1; /* another run created it: the last rename wins */
	}
	if (ret > 0)
		ret = rename_over(s, as, clears);
	if (ret == -2)
		return -1;
	if (ret == 0)
		return 0;
	return errno == ENOENT ? 1 : fail("rename to %s: %m", entry_shown(s, shown));
}

/* 1: something has that name by now, and t has a random name instead. */
static int link_nameless(const struct place_entry *s, struct temporary *t)
{
	struct place *p = s->place;

	if (temporary_link(t, s->dirfd, s->name, p->proc) == 0) {
		t->nameless = false;
		/* In a directory that existed before, an earlier run may have left a temporary. */
		if (!s->dir || !s->dir->fresh)
			entry_forget_leftovers(s);
		return 0;
	}
	if (errno == EEXIST && entry_check_folding(s))
		return -1;
	if (errno != EEXIST || temporary_give_name(t, s->dirfd, s->name, p->uid, p->proc))
		return entry_fail(s, "create");
	return 1;
}

/* Is a file on disk that was fsynced while it had no name?  On ext4 and XFS it is; btrfs logs
 * nothing of such a file. */
static bool is_nameless_synced(int fd)
{
	struct statfs fs;

	return RETRIED(fstatfs(fd, &fs)) == 0 && ((unsigned long)fs.f_type == EXT4_SUPER_MAGIC ||
						  (unsigned long)fs.f_type == XFS_SUPER_MAGIC);
}

/* named: t already has its final name.  If the fsync fails, that name is removed: the file has the
 * source's size and mtime, so the next run would take it for whole. */
static int sync_named(const struct place_entry *s, const struct temporary *t, bool named)
{
	struct stat mine, now;

	if (!s->place->rules->fsync || is_nameless_synced(t->fd) || outlet_sync(t->fd) == 0)
		return 0;
	entry_fail(s, "fsync");
	if (named && fstat(t->fd, &mine) == 0 &&
	    fstatat(s->dirfd, s->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	    now.st_ino == mine.st_ino && now.st_dev == mine.st_dev)
		unlinkat(s->dirfd, s->name, 0);
	return -1;
}

int entry_take_name(const struct place_entry *s, struct temporary *t, const struct stat *old)
{
	bool clears = s->dir || s->place->rules->recursive;
	struct stat now;
	int ret = 1;

	if (t->nameless) {
		ret = link_nameless(s, t);
		if (ret < 0 || sync_named(s, t, ret == 0))
			return -1;
		if (ret == 0)
			return 0;
		old = entry_look(s, &now) > 0 ? &now : NULL;
	}
	ret = entry_rename(s, t->name, old, clears);
	return ret > 0 ? entry_fail(s, "rename to") : ret;
}
