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

/* What the marker says.  *at: where the line of this target is, if it is there; else -1. */
static int read_marker(int fd, uint64_t target, off_t *at)
{
	char text[TARGETS_MAX * LINE + 1], line[LINE + 1];
	ssize_t size = pread_full(fd, text, sizeof text, 0), pos;
	bool others = false;

	*at = -1;
	if (size < 0)
		return -1;
	snprintf(line, sizeof line, "%016" PRIx64 "\n", target);
	for (pos = 0; pos + LINE <= size; pos += LINE) {
		if (memcmp(text + pos, line, LINE) == 0)
			*at = pos;
		else
			others |= memcmp(text + pos, blank, LINE) != 0;
	}
	if (others || pos < size)
		return MARKER_OTHERS;
	return *at < 0 ? MARKER_EMPTY : MARKER_OURS;
}

int walk_marker_find(int dirfd, uint64_t target)
{
	int fd = open_marker(dirfd, O_RDONLY), ret, err;
	off_t at;

	if (fd < 0)
		return errno == ENOENT ? MARKER_NONE : -1;
	ret = read_marker(fd, target, &at);
	err = errno;
	close_fd(fd);
	errno = err;
	return ret;
}

static int add_target(int fd, uint64_t target)
{
	char line[LINE + 1];
	off_t at;
	int was = read_marker(fd, target, &at);

	snprintf(line, sizeof line, "%016" PRIx64 "\n", target);
	if (was < 0 || (at < 0 && write_full(fd, line, LINE)))
		return -1;
	return RETRIED(fsync(fd));
}

int walk_marker_create(int dirfd, uint64_t target)
{
	int fd = open_marker(dirfd, O_RDWR | O_CREAT | O_APPEND), ret, err;

	if (fd < 0)
		return -1;
	ret = add_target(fd, target);
	err = errno;
	close_fd(fd);
	errno = err;
	if (ret)
		return -1;
	/* The marker must survive a power cut that a removal survives.  Some file systems
	 * cannot sync a directory. */
	return RETRIED(fsync(dirfd)) && errno != EINVAL && errno != EROFS ? -1 : 0;
}

int walk_marker_remove(int dirfd, uint64_t target)
{
	char name[OWN_NAME_ROOM];
	int fd = open_marker(dirfd, O_RDWR), ret, err;
	off_t at;

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	ret = read_marker(fd, target, &at);
	if (ret == MARKER_OTHERS && at >= 0)
		ret = pwrite_full(fd, blank, LINE, at) ? -1 : 0;
	err = errno;
	close_fd(fd);
	errno = err;
	own_name_marker(MOVE_HASH, name);
	if (ret != MARKER_EMPTY && ret != MARKER_OURS)
		return ret < 0 ? -1 : 0;
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -1 : 0;
}
