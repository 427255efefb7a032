/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include "base/fail.h"

enum { ROOM_MIN = 64 << 10, MIB = 1 << 20 };

static int no_room(const struct seat *s, int fd, uint64_t size)
{
	char shown[SHOWN_ROOM];
	int error = errno;
	struct statfs fs;
	bool known = error == ENOSPC && fstatfs(fd, &fs) == 0;
	uint64_t left = known ? (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize : 0;

	errno = error;
	seat_shown(s, shown);
	if (!known)
		return fail("write %s: %m", shown);
	return fail("write %s: %m: it takes %" PRIu64 " MiB, and %" PRIu64 " MiB are free there",
		    shown, (size + MIB - 1) / MIB, left / MIB);
}

int room_take(const struct seat *s, int fd, uint64_t size)
{
	struct statfs fs;

	if (size < ROOM_MIN)
		return 0;
	if (fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC)) {
		if (fs.f_blocks == 0 || size / (uint64_t)fs.f_bsize <= fs.f_bavail)
			return 0;
		errno = ENOSPC;
		return no_room(s, fd, size);
	}
	while (fallocate(fd, 0, 0, (off_t)size)) {
		if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
			return no_room(s, fd, size);
		if (errno != EINTR || place_stopped(s->place))
			break;
	}
	return 0;
}
