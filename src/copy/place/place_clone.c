/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/io.h"
#include "copy/io/clone.h"

/* Or is it this file that can't: one that is written in place always (btrfs: EINVAL), say? */
static bool is_clone_unsupported(int error)
{
	return error == EOPNOTSUPP || error == EXDEV || error == ENOTTY || error == ENOSYS;
}

bool seat_can_share(const struct seat *s, int from, struct clones *clones)
{
	struct stat there, source;
	bool can;
	int fd;

	if (s->dirfd < 0 || fstat(s->dirfd, &there) || fstat(from, &source) ||
	    clones_refused(clones, source.st_dev, there.st_dev))
		return false;
	fd = RETRIED(openat(s->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	can = fd >= 0 && clone_try(from, fd) == 0;
	if (!can && is_clone_unsupported(errno))
		clones_refuse(clones, source.st_dev, there.st_dev);
	close_fd(fd);
	return can;
}
