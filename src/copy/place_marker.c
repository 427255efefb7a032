/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where DST did not exist, a directory SRC becomes DST; where it did, it becomes DST/SRC.  So that
 * the second run after one that was interrupted does not take what the first one made for
 * something that was there, the first one leaves a marker in it, until the end.  The
 * directory gets its name only when the marker is in it.
 */

#include "copy/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/io.h"

enum { TRIES = 8 };

/* As the user wrote it, without what makes no difference. */
static size_t plain_source(const char **name)
{
	const char *s = *name;
	size_t len;

	while (s[0] == '.' && s[1] == '/') {
		s += 2;
		s += strspn(s, "/");
	}
	len = strlen(s);
	while (len > 1 && s[len - 1] == '/')
		len--;
	*name = s;
	return len;
}

void marker_name(const struct place *p, uint32_t want, const char *name,
		 char to[static OWN_NAME_ROOM])
{
	const char *source = p->o.wants ? p->o.wants[want] : name;
	const char *peer = p->o.peer ? p->o.peer : "";
	char both[HOST_MAX + NAME_MAX_WIRE + 1];
	size_t len = strnlen(peer, HOST_MAX);
	size_t more = plain_source(&source);

	if (more > NAME_MAX_WIRE)
		more = NAME_MAX_WIRE;
	memcpy(both, peer, len);
	both[len++] = '\0';
	memcpy(both + len, source, more);
	own_name_marker(XXH3_64bits(both, len + more), to);
}

bool marker_is_in(const struct place *p, int fd, const char *marker)
{
	struct stat st;

	return fstatat(fd, marker, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == p->uid;
}

static int put_marker(int fd, const char *marker)
{
	int m = openat(fd, marker, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (m < 0)
		return -1;
	close_fd(m);
	return 0;
}

/* 0: it is ours, empty but for the marker, perhaps from an earlier run.  -1: not for us. */
static int prepare(const struct place *p, int in, const char *marker, int *fd)
{
	struct stat st;

	if (mkdirat(in, marker, MAKING) && errno != EEXIST)
		return -1;
	*fd = dir_open(in, marker, &st);
	if (*fd < 0)
		return -1;
	if (st.st_uid == p->uid && put_marker(*fd, marker) == 0)
		return 0;
	close_fd(*fd);
	return -1;
}

/* Somebody else made the directory: what was prepared is not needed. */
static void undo(int in, const char *marker, int fd)
{
	if (unlinkat(fd, marker, 0) == 0)
		unlinkat(in, marker, AT_REMOVEDIR);
	close_fd(fd);
	errno = EEXIST;
}

static int make_plainly(int in, const char *name, const char *marker)
{
	struct stat st;
	int fd;

	if (mkdirat(in, name, MAKING))
		return -1;
	fd = dir_open(in, name, &st);
	if (fd >= 0 && put_marker(fd, marker) == 0)
		return fd;
	close_fd(fd);
	return -1;
}

int marker_make_dir(const struct place *p, int in, const char *name, const char *marker)
{
	int fd;

	for (int i = 0; i < TRIES && prepare(p, in, marker, &fd) == 0; i++) {
		if (renameat(in, marker, in, name) == 0)
			return fd;
		if (errno != ENOENT) {
			undo(in, marker, fd);
			return -1;
		}
		/* Another run with the same source took it. */
		close_fd(fd);
	}
	return make_plainly(in, name, marker);
}
