/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What is known to prevent deletions before any is made.  A directory that is in the way is deleted
 * as a whole or not at all (place_clear.c), so its rehearsal asks here.
 */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <unistd.h>
#include "base/capability.h"
#include "base/io.h"

enum { FIXED = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND };

/* -1 with errno.  An older kernel or a seccomp filter may not know the call: no attributes. */
static int read_attributes(int dirfd, const char *name, uint64_t *to)
{
	const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH;
	struct statx st;

	*to = 0;
	if (statx(dirfd, name, flags, 0, &st))
		return errno == ENOSYS ? 0 : -1;
	*to = st.stx_attributes;
	return 0;
}

int rights_is_mount(int fd)
{
	uint64_t has;

	if (read_attributes(fd, "", &has))
		return -1;
	return has & STATX_ATTR_MOUNT_ROOT ? 1 : 0;
}

/* Only the owners of an entry and of its directory remove it from a sticky directory. */
static bool is_stuck(const struct place *p, const struct stat *dir, const struct stat *entry)
{
	return (dir->st_mode & S_ISVTX) && p->uid != dir->st_uid && p->uid != entry->st_uid &&
	       !capability_has(CAP_FOWNER);
}

int rights_check_entry(const struct place *p, int dirfd, const char *name, const struct stat *entry)
{
	struct stat dir;
	uint64_t has;

	if (read_attributes(dirfd, name, &has) || fstat(dirfd, &dir))
		return -1;
	if ((has & FIXED) || is_stuck(p, &dir, entry))
		errno = EPERM;
	else if (has & STATX_ATTR_MOUNT_ROOT)
		errno = EBUSY;
	else
		return 0;
	return -1;
}

int rights_check_dir(const struct place *p, int fd, const struct stat *dir)
{
	uint64_t has;

	if (read_attributes(fd, "", &has))
		return -1;
	if (has & FIXED) {
		errno = EPERM;
		return -1;
	}
	if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	/* rights_loosen() */
	return errno == EACCES && dir->st_uid == p->uid ? 0 : -1;
}

int rights_loosen(const struct place *p, int *fd, const struct stat *dir)
{
	int better;

	if (p->uid == 0 || dir->st_uid != p->uid || (dir->st_mode & S_IRWXU) == S_IRWXU)
		return 0;
	if (metadata_chmod(p, *fd, (dir->st_mode & 07777) | S_IRWXU))
		return -1;
	better = dir_reopen(*fd);
	if (better >= 0) {
		close_fd(*fd);
		*fd = better;
	}
	return 1;
}
