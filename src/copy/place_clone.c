/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include "base/io.h"
#include "copy/clone.h"

bool seat_can_share(const struct seat *s, int from, struct clones *clones)
{
	struct stat there, source;
	bool can;
	int fd;

	if (s->dirfd < 0 || fstat(s->dirfd, &there) || fstat(from, &source) ||
	    clones_refused(clones, source.st_dev, there.st_dev))
		return false;
	fd = openat(s->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	can = fd >= 0 && clone_try(from, fd) == 0;
	close_fd(fd);
	if (!can)
		clones_refuse(clones, source.st_dev, there.st_dev);
	return can;
}
