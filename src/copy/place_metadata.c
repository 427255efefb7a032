/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_metadata.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { XATTR_MAX = 64 << 10 }; /* the kernel's bound for a list and for a value */

/* Capabilities are set-id by another name, and integrity hashes are of other content. */
static bool xattr_is_kept(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 ||
	       strcmp(name, "system.posix_acl_access") == 0 ||
	       strcmp(name, "security.selinux") == 0;
}

static bool xattr_copy(int fd, const char *old, const char *name, char *value)
{
	ssize_t n = getxattr(old, name, value, XATTR_MAX);
	bool told = strncmp(name, "user.", 5) == 0 || strncmp(name, "system.", 7) == 0;

	return n < 0 || fsetxattr(fd, name, value, (size_t)n, 0) == 0 || !told;
}

/* Names by /proc, since a descriptor of O_PATH gives no attributes. */
static bool xattrs_keep(int fd, int old)
{
	char *list, path[64];
	bool all = true;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/self/fd/%d", old);
	if (listxattr(path, NULL, 0) <= 0)
		return true;
	list = malloc(2 * XATTR_MAX);
	if (!list)
		return false;
	n = listxattr(path, list, XATTR_MAX);
	for (char *at = list; n > 0 && at < list + n; at += strlen(at) + 1) {
		if (xattr_is_kept(at))
			all = xattr_copy(fd, path, at, list + XATTR_MAX) && all;
	}
	free(list);
	return all;
}

static bool owner_keep(int fd, const struct stat *st)
{
	struct stat now;

	if (fstat(fd, &now))
		return false;
	if (now.st_uid == st->st_uid && now.st_gid == st->st_gid)
		return true;
	if (fchown(fd, st->st_uid, st->st_gid) == 0)
		return true;
	/* The group is often allowed where the owner is not. */
	if (now.st_gid != st->st_gid && fchown(fd, (uid_t)-1, st->st_gid))
		return false;
	return now.st_uid == st->st_uid;
}

int metadata_keep(int fd, int old, bool mode_too, const char **lost)
{
	struct stat st;
	mode_t mode;
	bool owner;

	*lost = NULL;
	if (fstat(old, &st))
		return -1;
	owner = owner_keep(fd, &st);
	if (!owner)
		*lost = "owner";
	if (!mode_too)
		return 0;
	if (!xattrs_keep(fd, old))
		*lost = "extended attributes";
	mode = st.st_mode & (owner ? 07777 : 0777);
	return fchmod(fd, mode);
}

int metadata_preserve(int fd, const struct record_file *r)
{
	struct timespec times[2] = {
		{.tv_sec = r->atime_s, .tv_nsec = r->atime_ns},
		{.tv_sec = r->mtime_s, .tv_nsec = r->mtime_ns},
	};

	return fchmod(fd, r->mode & 0777) || futimens(fd, times) ? -1 : 0;
}
