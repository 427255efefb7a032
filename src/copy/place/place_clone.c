/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/io.h"
#include "copy/io/clone.h"

/* The file systems cannot share blocks.  Any other error may concern this file alone, such as
 * EINVAL on btrfs for a file without copy on write. */
static bool is_clone_unsupported(int error)
{
	return error == EOPNOTSUPP || error == EXDEV || error == ENOTTY || error == ENOSYS;
}

bool entry_can_share(const struct place_entry *s, int from, struct clones *clones)
{
	struct stat target, source;
	bool can;
	int fd;

	if (s->dirfd < 0 || fstat(s->dirfd, &target) || fstat(from, &source) ||
	    clones_refused(clones, source.st_dev, target.st_dev))
		return false;
	fd = RETRIED(openat(s->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	can = fd >= 0 && clone_try(from, fd) == 0;
	if (!can && is_clone_unsupported(errno))
		clones_refuse(clones, source.st_dev, target.st_dev);
	close_fd(fd);
	return can;
}
