/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/walk/walk_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "copy/names/own_name.h"

/* Any constant.  The markers of place_marker.c have hashes. */
enum { MOVE_HASH = 0x6d6f7665 };
/* A line has 16 hex digits.  A line of dashes is for no target any more. */
enum { LINE = 17, TARGETS_MAX = 64 };
static const char blank[] = "----------------\n";

/* -1 with errno; ENOENT: there is none. */
static int open_marker(int dirfd, int flags)
{
	char name[OWN_NAME_ROOM];
	struct stat st, dir;
	int fd, err = 0;

	own_name_marker(MOVE_HASH, name);
	fd = RETRIED(openat(dirfd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || fstat(dirfd, &dir))
		err = errno;
	/* Some servers let the owner of the directory own what root creates. */
	else if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != dir.st_uid))
		err = EEXIST;
	if (err == 0)
		return fd;
	close_fd(fd);
	errno = err;
	return -1;
}

struct marker_lines {
	off_t mine; /* where the line of this target is; -1: it is not there */
	off_t free; /* where a new line may be written; -1: there are too many */
	bool others;
};

/* Bytes behind the last whole line were written by a run that was killed before it moved
 * anything.  -1 with errno. */
static int read_lines(int fd, uint64_t target, struct marker_lines *l)
{
	char text[TARGETS_MAX * LINE], line[LINE + 1];
	ssize_t size = pread_full(fd, text, sizeof text, 0), pos;

	*l = (struct marker_lines){.mine = -1, .free = -1};
	if (size < 0)
		return -1;
	snprintf(line, sizeof line, "%016" PRIx64 "\n", target);
	for (pos = 0; pos + LINE <= size; pos += LINE) {
		if (memcmp(text + pos, line, LINE) == 0)
			l->mine = pos;
		else if (memcmp(text + pos, blank, LINE) != 0)
			l->others = true;
		else if (l->free < 0)
			l->free = pos;
	}
	if (l->free < 0 && pos < (ssize_t)sizeof text)
		l->free = pos;
	return 0;
}

static enum walk_marker marker_of(const struct marker_lines *l)
{
	if (l->others)
		return MARKER_OTHERS;
	return l->mine < 0 ? MARKER_EMPTY : MARKER_OURS;
}

int walk_marker_find(int dirfd, uint64_t target)
{
	int fd = open_marker(dirfd, O_RDONLY), ret;
	struct marker_lines l;

	if (fd < 0)
		return errno == ENOENT ? MARKER_NONE : -1;
	ret = read_lines(fd, target, &l) ? -1 : (int)marker_of(&l);
	close_fd(fd);
	return ret;
}

enum walk_marker_place walk_marker_find_upward(int fd)
{
	enum walk_marker_place found = MARKER_NOT_UPWARD;
	int up;
	struct stat st, last = {.st_ino = 0};
	char name[OWN_NAME_ROOM];

	own_name_marker(MOVE_HASH, name);
	/* What is above may be closed to us; and the root is its own parent. */
	for (unsigned depth = 0; fd >= 0 && fstat(fd, &st) == 0; depth++, fd = up) {
		if (depth > 0 && st.st_ino == last.st_ino && st.st_dev == last.st_dev)
			break;
		last = st;
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
			found = depth == 0 ? MARKER_HERE : MARKER_ABOVE;
			break;
		}
		up = RETRIED(openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
		close_fd(fd);
	}
	close_fd(fd);
	return found;
}

static int add_target(int fd, uint64_t target)
{
	char line[LINE + 1];
	struct marker_lines l;

	if (read_lines(fd, target, &l))
		return -1;
	snprintf(line, sizeof line, "%016" PRIx64 "\n", target);
	if (l.mine < 0 && l.free < 0)
		errno = ENOSPC;
	if (l.mine < 0 && (l.free < 0 || pwrite_full(fd, line, LINE, l.free)))
		return -1;
	return RETRIED(fsync(fd));
}

int walk_marker_create(int dirfd, uint64_t target)
{
	int fd = open_marker(dirfd, O_RDWR | O_CREAT), ret;

	if (fd < 0)
		return -1;
	ret = add_target(fd, target);
	close_fd(fd);
	if (ret)
		return -1;
	/* The marker must survive a power cut that a removal survives.  Some file systems
	 * cannot sync a directory. */
	return RETRIED(fsync(dirfd)) && errno != EINVAL && errno != EROFS ? -1 : 0;
}

int walk_marker_remove(int dirfd, uint64_t target)
{
	char name[OWN_NAME_ROOM];
	int fd = open_marker(dirfd, O_RDWR), ret;
	struct marker_lines l;

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	ret = read_lines(fd, target, &l);
	if (ret == 0 && l.others && l.mine >= 0)
		ret = pwrite_full(fd, blank, LINE, l.mine);
	close_fd(fd);
	own_name_marker(MOVE_HASH, name);
	if (ret || l.others)
		return ret;
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -1 : 0;
}
