/* SPDX-License-Identifier: Apache-2.0 */

/*
 * --backup-dir, and what it must not overlap.  A backup that is put where the source stores a file
 * would replace that file, or be replaced by it.  A backup that is put into a source could replace
 * a file that is still to be read.
 */

#include "copy/place/place_impl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "base/io.h"

/* Of memory for the hashes of directories.  The sink bounds their number before that. */
enum { DIRS_BYTES_MAX = 256 << 20 };

static bool has_backup_dir(const struct place *p)
{
	return place_backs_up(p) && *p->backup_dir;
}

/* The directory that a relative --backup-dir is below. */
static int get_backup_base(struct place *p)
{
	int fd;

	pthread_mutex_lock(&p->lock);
	fd = p->is_dir ? p->top->held.fd : p->dst.dirfd;
	pthread_mutex_unlock(&p->lock);
	return fd;
}

static struct inode inode_of(const struct stat *st)
{
	struct inode i;

	memset(&i, 0, sizeof i); /* it is hashed as bytes */
	i.dev = st->st_dev;
	i.ino = st->st_ino;
	return i;
}

/* ---- the target itself --------------------------------------------------------------------- */

/* Notes the inode of --backup-dir, if it exists.  True: it is the directory that it is relative to.
 */
static bool note_existing_backups(struct place *p)
{
	int base = get_backup_base(p), fd;
	struct stat at, st;
	bool is_base = false;

	fd = base < 0 ? -1 : backups_find_whole(base, p->backup_dir);
	if (fd >= 0 && fstat(fd, &st) == 0) {
		p->backups_inode = inode_of(&st);
		is_base = fstat(base, &at) == 0 && at.st_dev == st.st_dev && at.st_ino == st.st_ino;
	}
	close_fd(fd);
	return is_base;
}

/* Is DST to be made?  It is not known yet which directory --backup-dir is relative to. */
static bool is_dst_unmade(const struct place *p)
{
	struct stat st;

	return p->dst.dir_missing || p->dst.by_path ||
	       (!p->is_dir && fstatat(p->dst.dirfd, p->dst.name, &st, AT_SYMLINK_NOFOLLOW));
}

int backup_dir_begin(struct place *p)
{
	struct stat st;

	if (!has_backup_dir(p))
		return 0;
	if (!is_dst_unmade(p) && note_existing_backups(p)) {
		if (!*p->suffix)
			return fail_as(OUT_USAGE,
				       "--backup-dir=%s is the target itself: a backup there needs "
				       "another name (--suffix)",
				       p->backup_dir);
		p->backup_dir = "";
		return 0;
	}
	if (!p->is_dir || p->dst.dir_missing)
		return 0;
	if (fstat(p->top->held.fd, &st))
		return fail("open %s: %m", p->dst.shown);
	return backup_dir_add_target(p, p->dst.shown, &st);
}

/* ---- where files of the source go ---------------------------------------------------------- */

static int fail_overlap(const struct place *p, const char *name)
{
	return fail("store %s: it is --backup-dir=%s", name, p->backup_dir);
}

int backup_dir_check_name(struct place *p, int dirfd, const char *name)
{
	char last[NAME_MAX + 1];
	struct stat parent, in;
	bool is;
	int fd;

	if (!has_backup_dir(p) || !strstr(p->backup_dir, name))
		return 0;
	fd = backups_find_parent(get_backup_base(p), p->backup_dir, last);
	is = fd >= 0 && strcmp(last, name) == 0 && fstat(fd, &parent) == 0 &&
	     fstat(dirfd, &in) == 0 && parent.st_dev == in.st_dev && parent.st_ino == in.st_ino;
	close_fd(fd);
	return is ? fail_overlap(p, name) : 0;
}

int backup_dir_add_target(struct place *p, const char *name, const struct stat *st)
{
	const struct inode i = inode_of(st);
	bool is;
	int ret;

	pthread_mutex_lock(&p->lock);
	is = has_backup_dir(p) && memcmp(&p->backups_inode, &i, sizeof i) == 0;
	ret = is ? 0 : hash_set_add(&p->target_dirs, &i, sizeof i, DIRS_BYTES_MAX, "directories");
	pthread_mutex_unlock(&p->lock);
	return is ? fail_overlap(p, name) : ret < 0 ? -1 : 0;
}

bool place_fills_dir(struct place *p, const struct stat *st)
{
	const struct inode i = inode_of(st);
	bool is;

	pthread_mutex_lock(&p->lock);
	is = hash_set_has(&p->target_dirs, &i, sizeof i);
	pthread_mutex_unlock(&p->lock);
	return is;
}

bool backup_dir_is_target(struct place *p, const struct stat *st)
{
	return has_backup_dir(p) && place_fills_dir(p, st);
}

/* ---- where backups go ---------------------------------------------------------------------- */

/* Remembers the directory fd and all directories above it. */
static int remember_above(struct place *p, int fd)
{
	int at = fcntl(fd, F_DUPFD_CLOEXEC, 0), up;
	struct stat st, below = {0};

	p->backups_above_count = 0;
	while (at >= 0 && fstat(at, &st) == 0 &&
	       (st.st_dev != below.st_dev || st.st_ino != below.st_ino)) {
		if (ARRAY_ROOM(p->backups_above, p->backups_above_count, p->backups_above_room,
			       1)) {
			close_fd(at);
			return fail_as(OUT_MEMORY, "open %s: %m", p->backup_dir);
		}
		p->backups_above[p->backups_above_count++] = origin_of(&st);
		below = st;
		up = RETRIED(openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
		close_fd(at);
		at = up;
	}
	close_fd(at);
	return 0;
}

/* Call with backups_lock held. */
static int open_backups_once(struct place *p)
{
	struct stat st;
	int fd;

	if (p->backups_fd >= 0)
		return p->backups_fd;
	fd = backups_open(get_backup_base(p), p->backup_dir);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st)) {
		fail("open %s: %m", p->backup_dir);
	} else if (remember_above(p, fd) == 0) {
		pthread_mutex_lock(&p->lock);
		p->backups_inode = inode_of(&st);
		pthread_mutex_unlock(&p->lock);
		return p->backups_fd = fd;
	}
	close_fd(fd);
	return -1;
}

/* Not changed once backups_fd is open. */
static bool is_in_source(struct place *p)
{
	for (size_t i = 0; i < p->backups_above_count; i++) {
		if (place_is_origin(p, p->backups_above[i]))
			return true;
	}
	return false;
}

int backup_dir_open(struct place *p, const char *of)
{
	struct stat st;
	int fd;

	pthread_mutex_lock(&p->backups_lock);
	fd = open_backups_once(p);
	pthread_mutex_unlock(&p->backups_lock);
	if (fd < 0)
		return fail_as(failed()->code, "back up %s: %s", of, failed()->text);
	/* A backup there could replace a file that the source has not read yet. */
	if (is_in_source(p))
		return fail("back up %s to %s: this directory is a source of the copy, or in one",
			    of, p->backup_dir);
	if (fstat(fd, &st) == 0 && backup_dir_is_target(p, &st))
		return fail("back up %s to %s: files of the source go to this directory", of,
			    p->backup_dir);
	return fd;
}

int backup_dir_check_entered(struct place *p, int fd, const char *name, const char *of)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail("back up %s: open directory %s in %s: %m", of, name, p->backup_dir);
	if (place_is_source(p, &st))
		return fail("back up %s to %s in %s: this directory is a source of the copy", of,
			    name, p->backup_dir);
	if (backup_dir_is_target(p, &st))
		return fail("back up %s to %s in %s: files of the source go to this directory", of,
			    name, p->backup_dir);
	return 0;
}

int backup_dir_check_replaced(struct place *p, const char *name, const struct stat *st)
{
	if (place_is_source(p, st))
		return fail("replace %s in %s by a backup: it is a source of the copy", name,
			    p->backup_dir);
	if (S_ISDIR(st->st_mode) && backup_dir_is_target(p, st))
		return fail("replace %s in %s by a backup: files of the source go to this "
			    "directory",
			    name, p->backup_dir);
	return 0;
}
