/* SPDX-License-Identifier: Apache-2.0 */

/* The last step: gives a whole file its name. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/outlet.h"

/* Of a file system that can't do it at once. */
static int link_new(const struct seat *s, const char *as)
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

/* To a name that is free: -1 with errno, EEXIST if it is not. */
static int rename_new(const struct seat *s, const char *as)
{
	if (syscall(SYS_renameat2, s->dirfd, as, s->dirfd, s->name, RENAME_NOREPLACE) == 0)
		return 0;
	return errno == EINVAL || errno == ENOSYS ? link_new(s, as) : -1;
}

/* -1 with errno; -2 with a failure. */
static int rename_over(const struct seat *s, const char *as, bool clears)
{
	if (renameat(s->dirfd, as, s->dirfd, s->name) == 0)
		return 0;
	if (errno != EISDIR || !clears)
		return -1;
	return delete_in_the_way(s) ? -2 : renameat(s->dirfd, as, s->dirfd, s->name);
}

int seat_rename(const struct seat *s, const char *as, const struct stat *old, bool clears)
{
	char shown[SHOWN_ROOM];
	int ret;

	if (old && seat_check_replacing(s, old))
		return -1;
	if (place_backs_up(s->place) && old && !S_ISDIR(old->st_mode) &&
	    backup_make_of_seat(s, false))
		return -1;
	ret = old ? 1 : rename_new(s, as);
	if (ret < 0 && errno == EEXIST) {
		if (seat_check_folding(s))
			return -1;
		ret = 1; /* another run's */
	}
	if (ret > 0)
		ret = rename_over(s, as, clears);
	if (ret == -2)
		return -1;
	if (ret == 0)
		return 0;
	return errno == ENOENT ? 1 : fail("rename to %s: %m", seat_shown(s, shown));
}

/* 1: something has that name by now; then it has another one. */
static int link_nameless(const struct seat *s, struct temporary *t)
{
	struct place *p = s->place;

	if (temporary_link(t, s->dirfd, s->name, p->proc) == 0) {
		t->nameless = false;
		/* Another run's, in a directory that was there. */
		if (!s->in || !s->in->fresh)
			seat_forget_leftovers(s);
		return 0;
	}
	if (errno == EEXIST && seat_check_folding(s))
		return -1;
	if (errno != EEXIST || temporary_give_name(t, s->dirfd, s->name, p->uid, p->proc))
		return seat_fail(s, "create");
	return 1;
}

/* Is a file that was synced before it had a name on disk? btrfs logs nothing of it then; these two
 * keep it as any other. */
static bool is_nameless_synced(int fd)
{
	struct statfs fs;

	return RETRIED(fstatfs(fd, &fs)) == 0 && ((unsigned long)fs.f_type == EXT4_SUPER_MAGIC ||
						  (unsigned long)fs.f_type == XFS_SUPER_MAGIC);
}

/* named: it is there under the name that it is to have.  With a source's size and time it would be
 * taken for whole by the next run, so it goes if it is not on disk. */
static int sync_named(const struct seat *s, const struct temporary *t, bool named)
{
	struct stat mine, now;

	if (!s->place->rules->fsync || is_nameless_synced(t->fd) || outlet_sync(t->fd) == 0)
		return 0;
	seat_fail(s, "fsync");
	if (named && fstat(t->fd, &mine) == 0 &&
	    fstatat(s->dirfd, s->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	    now.st_ino == mine.st_ino && now.st_dev == mine.st_dev)
		unlinkat(s->dirfd, s->name, 0);
	return -1;
}

int seat_take_name(const struct seat *s, struct temporary *t, const struct stat *old)
{
	bool clears = s->in || s->place->rules->recursive;
	struct stat now;
	int ret = 1;

	if (t->nameless) {
		ret = link_nameless(s, t);
		if (ret < 0 || sync_named(s, t, ret == 0))
			return -1;
		if (ret == 0)
			return 0;
		old = seat_look(s, &now) > 0 ? &now : NULL;
	}
	ret = seat_rename(s, t->name, old, clears);
	return ret > 0 ? seat_fail(s, "rename to") : ret;
}
