/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/floor.h"

enum { ROOM_MIN = 64 << 10, MIB = 1 << 20 };

/* fs: before anything was allocated; NULL: unknown. */
static int fail_no_room(const struct place_entry *s, const struct statfs *fs, uint64_t size)
{
	char shown[SHOWN_ROOM];
	uint64_t left;

	entry_shown(s, shown);
	if (!fs || errno != ENOSPC)
		return fail("write %s: %m", shown);
	left = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
	return fail("write %s: %m: it needs %" PRIu64 " MiB, and %" PRIu64 " MiB are free", shown,
		    (size + MIB - 1) / MIB, left / MIB);
}

int room_check(const struct place_entry *s)
{
	char shown[SHOWN_ROOM];

	return floor_check(s->dirfd, 0) ? floor_fail(entry_shown(s, shown)) : 0;
}

int room_reserve(const struct place_entry *s, int fd, uint64_t size)
{
	char shown[SHOWN_ROOM];
	unsigned long type;
	struct statfs fs;
	bool known;

	if (floor_check(fd, size))
		return floor_fail(entry_shown(s, shown));
	/* A floor holds for what is written. */
	if (size < ROOM_MIN || floor_is_set())
		return 0;
	known = RETRIED(fstatfs(fd, &fs)) == 0;
	type = known ? (unsigned long)fs.f_type : 0;
	if (type == TMPFS_MAGIC || type == BTRFS_SUPER_MAGIC) {
		if (fs.f_blocks == 0 || size / (uint64_t)fs.f_bsize <= fs.f_bavail)
			return 0;
		errno = ENOSPC;
		return fail_no_room(s, &fs, size);
	}
	while (fallocate(fd, 0, 0, (off_t)size)) {
		/* Some file systems allocate all that is free before they fail, so the free space
		 * of now would mislead. */
		if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
			return fail_no_room(s, known ? &fs : NULL, size);
		if (errno != EINTR || place_stopped(s->place))
			break;
	}
	return 0;
}
