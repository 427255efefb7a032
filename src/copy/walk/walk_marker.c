/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/walk/walk_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/io.h"
#include "copy/names/own_name.h"

/* Any constant.  The markers of place_marker.c have hashes. */
enum { MOVE_HASH = 0x6d6f7665 };

int walk_marker_find(int fd)
{
	char name[OWN_NAME_ROOM];
	struct stat st, dir;

	own_name_marker(MOVE_HASH, name);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -1;
	if (fstat(fd, &dir))
		return -1;
	/* Some servers let the owner of the directory own what root creates. */
	if (S_ISREG(st.st_mode) && (st.st_uid == geteuid() || st.st_uid == dir.st_uid))
		return 1;
	errno = EEXIST;
	return -1;
}

int walk_marker_create(int dirfd)
{
	int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, fd;
	char name[OWN_NAME_ROOM];

	own_name_marker(MOVE_HASH, name);
	fd = RETRIED(openat(dirfd, name, flags, 0600));
	if (fd < 0)
		return -1;
	close_fd(fd);
	if (walk_marker_find(dirfd) <= 0)
		return -1;
	/* The marker must survive a power cut that a removal survives.  Some file systems
	 * cannot sync a directory. */
	return RETRIED(fsync(dirfd)) && errno != EINVAL && errno != EROFS ? -1 : 0;
}

int walk_marker_remove(int dirfd)
{
	char name[OWN_NAME_ROOM];

	own_name_marker(MOVE_HASH, name);
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -1 : 0;
}
