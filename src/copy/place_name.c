/* SPDX-License-Identifier: Apache-2.0 */

/* The last step: what is whole gets its name. */

#include "copy/place_impl.h"

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
#include "copy/outlet.h"

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

/* ---- where a directory is --------------------------------------------------------------- */

static int exchange(const struct seat *s, const char *a, const char *b)
{
	return (int)syscall(SYS_renameat2, s->dirfd, a, s->dirfd, b, RENAME_EXCHANGE);
}

static int rename_in(const struct seat *s, const char *from, const char *to)
{
	return renameat(s->dirfd, from, s->dirfd, to);
}

/* Give a the name of b, and b one of our own.  -1 with errno: nothing has changed. */
static int put_in_place(const struct seat *s, const char *a, const char *b, const char *own)
{
	int err;

	if (exchange(s, a, b) == 0) {
		if (rename_in(s, a, own) == 0)
			return 0;
		err = errno;
		exchange(s, a, b);
		errno = err;
		return -1;
	}
	/* Of a file system that can't do it at once. */
	if ((errno != EINVAL && errno != ENOSYS) || rename_in(s, b, own))
		return -1;
	if (rename_in(s, a, b) == 0)
		return 0;
	err = errno;
	rename_in(s, own, b);
	errno = err;
	return -1;
}

static bool may_be_listed(const struct seat *s)
{
	struct stat st;
	int fd = dir_open(s->dirfd, s->name, &st), own = fd < 0 ? -1 : dir_reopen(fd);

	close_fd(own);
	close_fd(fd);
	return own >= 0;
}

/* The directory goes when the name is taken; if it does not, or not all of it, it gets the name
 * back.  -1 with errno; -2 with a failure. */
static int replace_dir(const struct seat *s, const char *as)
{
	char aside[OWN_NAME_ROOM];
	struct failure why;
	uint64_t count;

	if (way_is_kept(s) || !may_be_listed(s))
		return way_clear(s) ? -2 : rename_in(s, as, s->name);
	if (way_look(s, &count))
		return -2;
	if (temporary_name(s->name, s->place->uid, aside) || put_in_place(s, as, s->name, aside))
		return -1;
	if (way_remove(s, aside, count) == 0)
		return 0;
	why = *failed();
	put_in_place(s, aside, s->name, as);
	fail_again(&why);
	return -2;
}

/* -1 with errno; -2 with a failure. */
static int rename_over(const struct seat *s, const char *as, bool clears)
{
	if (renameat(s->dirfd, as, s->dirfd, s->name) == 0)
		return 0;
	return errno == EISDIR && clears ? replace_dir(s, as) : -1;
}

int seat_rename(const struct seat *s, const char *as, const struct stat *old, bool clears)
{
	char shown[SHOWN_ROOM];
	int ret;

	if (old && seat_check_replacing(s, old))
		return -1;
	if (place_backs_up(s->place) && old && !S_ISDIR(old->st_mode) && backup_seat(s, false))
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
			seat_is_whole(s);
		return 0;
	}
	if (errno == EEXIST && seat_check_folding(s))
		return -1;
	if (errno != EEXIST || temporary_give_name(t, s->dirfd, s->name, p->uid, p->proc))
		return seat_failure(s, "create");
	return 1;
}

/* Is a file that was synced before it had a name on disk? btrfs logs nothing of it then; these two
 * keep it as any other. */
static bool keeps_nameless(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && ((unsigned long)fs.f_type == EXT4_SUPER_MAGIC ||
					 (unsigned long)fs.f_type == XFS_SUPER_MAGIC);
}

static int sync_named(const struct seat *s, const struct temporary *t)
{
	if (!s->place->o.fsync || keeps_nameless(t->fd) || outlet_sync(t->fd) == 0)
		return 0;
	return seat_failure(s, "fsync");
}

int seat_take_name(const struct seat *s, struct temporary *t, const struct stat *old)
{
	bool clears = s->in || s->place->rules->recursive;
	struct stat now;
	int ret = 1;

	if (t->nameless) {
		ret = link_nameless(s, t);
		if (ret < 0 || sync_named(s, t))
			return -1;
		if (ret == 0)
			return 0;
		old = seat_look(s, &now) > 0 ? &now : NULL;
	}
	ret = seat_rename(s, t->name, old, clears);
	return ret > 0 ? seat_failure(s, "rename to") : ret;
}
