/* SPDX-License-Identifier: Apache-2.0 */

/*
 * All paths here are below /proc/self/fd.  Before Linux 6.13 that is the only way to the attributes
 * of a descriptor opened with O_PATH.  Such a path leads to the descriptor's inode, even if that is
 * a symlink, and no further.
 *
 * A module of rdcpd has no /proc.  There a directory is opened again, and a symlink has no
 * attributes: it cannot have those that a module permits.  Of these a FIFO or a device can have an
 * ACL, which is out of reach.
 */

#include "copy/attr/xattrs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/io.h"
#include "protocol/acl.h"

enum { LINK_ROOM = 32 };

static const char *format_fd_link(int fd, char to[static LINK_ROOM])
{
	snprintf(to, LINK_ROOM, "/proc/self/fd/%d", fd);
	return to;
}

/* A path below /proc/self/fd failed. Returns the directory fd, opened again, if there is no /proc;
 * -1: that does not help. Keeps errno then. */
static int reopen_without_procfs(int fd)
{
	int err = errno, dir;

	if (err != ENOENT)
		return -1;
	dir = RETRIED(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	errno = err;
	return dir;
}

/* A path below /proc/self/fd failed. Returns the type of fd if there is no /proc, else 0. */
static mode_t type_without_procfs(int fd)
{
	int err = errno;
	struct stat st;
	bool known = err == ENOENT && fstat(fd, &st) == 0;

	errno = err;
	return known ? st.st_mode & S_IFMT : 0;
}

bool xattr_is_out_of_reach(int fd)
{
	mode_t type = type_without_procfs(fd);

	return type != 0 && type != S_IFREG && type != S_IFDIR;
}

ssize_t xattr_list(int fd, char *to, size_t size)
{
	ssize_t n = flistxattr(fd, to, size);
	char link[LINK_ROOM];
	int dir;

	if (n >= 0 || errno != EBADF)
		return n;
	n = listxattr(format_fd_link(fd, link), to, size);
	if (n < 0 && type_without_procfs(fd) == S_IFLNK)
		return 0;
	if (n < 0 && (dir = reopen_without_procfs(fd)) >= 0) {
		n = flistxattr(dir, to, size);
		close_fd(dir);
	}
	return n;
}

ssize_t xattr_get(int fd, const char *name, void *to, size_t size)
{
	ssize_t n = fgetxattr(fd, name, to, size);
	char link[LINK_ROOM];
	int dir;

	if (n >= 0 || errno != EBADF)
		return n;
	n = getxattr(format_fd_link(fd, link), name, to, size);
	if (n < 0 && (dir = reopen_without_procfs(fd)) >= 0) {
		n = fgetxattr(dir, name, to, size);
		close_fd(dir);
	}
	return n;
}

mode_t xattrs_umask(int fd, mode_t umask)
{
	enum { ENTRIES = 256 };
	static const char name[] = "system.posix_acl_default";
	uint8_t bytes[ACL_HEAD + ENTRIES * ACL_ENTRY];
	struct acl_entry e[ENTRIES];
	ssize_t size = xattr_get(fd, name, bytes, sizeof bytes);
	int count = size > 0 ? acl_decode(bytes, (size_t)size, e) : -1;
	unsigned user = 7, group = 7, other = 7;

	if (count < 0)
		return umask;
	for (int i = 0; i < count; i++) {
		if (e[i].tag == ACL_USER_OBJ)
			user = e[i].perm;
		else if (e[i].tag == ACL_GROUP_OBJ || e[i].tag == ACL_MASK)
			group = e[i].perm; /* a mask comes later, and replaces the group's bits */
		else if (e[i].tag == ACL_OTHER)
			other = e[i].perm;
	}
	return 0777 & ~(user << 6 | group << 3 | other);
}

int xattr_put(int fd, const char *name, const void *value, size_t size)
{
	int rc = fsetxattr(fd, name, value, size, 0), dir;
	char link[LINK_ROOM];

	if (!rc || errno != EBADF)
		return rc;
	rc = setxattr(format_fd_link(fd, link), name, value, size, 0);
	if (rc && (dir = reopen_without_procfs(fd)) >= 0) {
		rc = fsetxattr(dir, name, value, size, 0);
		close_fd(dir);
	}
	return rc;
}

int xattr_remove(int fd, const char *name)
{
	int rc = fremovexattr(fd, name), dir;
	char link[LINK_ROOM];

	if (!rc || errno != EBADF)
		return rc;
	rc = removexattr(format_fd_link(fd, link), name);
	if (rc && (dir = reopen_without_procfs(fd)) >= 0) {
		rc = fremovexattr(dir, name);
		close_fd(dir);
	}
	return rc;
}

static int chmod_any_fd(int fd, mode_t mode)
{
	int rc = fchmod(fd, mode);
	char link[LINK_ROOM];

	return rc && errno == EBADF ? chmod(format_fd_link(fd, link), mode) : rc;
}

void xattr_widen(int fd, mode_t *old)
{
	const mode_t need = S_IRUSR | S_IWUSR;
	uid_t me = geteuid();
	struct stat st;

	*old = (mode_t)-1;
	if (me == 0 || fstat(fd, &st) || st.st_uid != me || (st.st_mode & need) == need)
		return;
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return;
	if (chmod_any_fd(fd, (st.st_mode & 07777) | need) == 0)
		*old = st.st_mode & 07777;
}

void xattr_narrow(int fd, mode_t old)
{
	if (old != (mode_t)-1)
		chmod_any_fd(fd, old);
}

void xattr_narrow_group(int fd, unsigned rights)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && (st.st_mode >> 3 & 7 & ~rights))
		chmod_any_fd(fd, st.st_mode & 07777 & (~(mode_t)S_IRWXG | rights << 3));
}
