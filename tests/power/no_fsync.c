/* SPDX-License-Identifier: Apache-2.0 */

/* Preloaded into a program, makes fsync do nothing. It shows that `cuts' detects lost data. */

#include <fcntl.h>
#include <unistd.h>

int fsync(int fd)
{
	return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

int fdatasync(int fd)
{
	return fsync(fd);
}

int syncfs(int fd)
{
	return fsync(fd);
}

int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned flags)
{
	(void)from;
	(void)bytes;
	(void)flags;
	return fsync(fd);
}
