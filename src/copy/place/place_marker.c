/* SPDX-License-Identifier: Apache-2.0 */

/*
 * If DST does not exist, a directory SRC becomes DST; if it exists, SRC becomes DST/SRC.  A rerun
 * after an interrupted run must not take the DST that the first run made for one that existed
 * before.  So the first run leaves a marker in it until the end.  The directory gets its name only
 * when the marker is in it.  If a run is killed before that, the directory is swept like any
 * temporary.
 */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/io.h"
#include "base/log.h"

enum { TRIES = 8 };

/* Skips "./" at the beginning of a SRC, and leaves out slashes at its end.  Returns the length. */
static size_t trim_source(const char **name)
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
	const char *source = p->opts.wants ? p->opts.wants[want] : name;
	const char *peer = p->opts.peer ? p->opts.peer : "";
	char peer_and_source[HOST_MAX + NAME_MAX_WIRE + 1];
	size_t len = strnlen(peer, HOST_MAX);
	size_t more = trim_source(&source);

	if (more > NAME_MAX_WIRE)
		more = NAME_MAX_WIRE;
	memcpy(peer_and_source, peer, len);
	peer_and_source[len++] = '\0';
	memcpy(peer_and_source + len, source, more);
	own_name_marker(XXH3_64bits(peer_and_source, len + more), to);
}

bool marker_is_in(const struct place *p, int fd, const char *marker)
{
	struct stat st;

	return fstatat(fd, marker, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == p->uid;
}

static int create_marker(int fd, const char *marker)
{
	int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int m = RETRIED(openat(fd, marker, flags, 0600));

	if (m < 0)
		return -1;
	close_fd(m);
	return 0;
}

/* Removes a directory that is not needed after all.  Returns 0 or an errno.  Preserves errno. */
static int remove_marked_dir(int parent, const char *name, const char *marker, int fd)
{
	int err = errno, ret;

	if (fd >= 0)
		unlinkat(fd, marker, 0);
	ret = unlinkat(parent, name, AT_REMOVEDIR) ? errno : 0;
	close_fd(fd);
	errno = err;
	return ret;
}

/* Makes a directory with a random name and the marker in it.  Returns its descriptor; -1 with
 * errno. */
static int make_temporary_dir(const struct place *p, int parent, const char *marker, mode_t mode,
			      char temporary[static OWN_NAME_ROOM])
{
	struct stat st;
	int fd;

	if (temporary_name(marker, p->uid, temporary) || mkdirat(parent, temporary, mode))
		return -1;
	fd = dir_open(parent, temporary, &st);
	if (fd >= 0 && st.st_uid == p->uid && temporary_dir_lock(parent, temporary, fd) == 0 &&
	    create_marker(fd, marker) == 0)
		return fd;
	remove_marked_dir(parent, temporary, marker, fd);
	return -1;
}

/* For a file system that does not rename directories. */
static int make_marked_dir(const struct place *p, int parent, const char *name, const char *marker,
			   mode_t mode)
{
	struct stat st;
	int fd, err;

	if (mkdirat(parent, name, mode))
		return -1;
	fd = dir_open(parent, name, &st);
	if (fd >= 0 && create_marker(fd, marker) == 0)
		return fd;
	/* A rerun would take a directory without a marker for one that existed before. */
	err = remove_marked_dir(parent, name, marker, fd);
	if (err && err != ENOENT)
		log_warn("remove directory %s: %s; remove it before you run this command again",
			 p->dst.shown, strerror(err));
	return -1;
}

static bool is_name_in_use(int err)
{
	return err == EEXIST || err == ENOTEMPTY || err == ENOTDIR || err == EISDIR;
}

int marker_make_dir(struct place *p, int parent, const char *name, const char *marker, mode_t mode)
{
	char temporary[OWN_NAME_ROOM];
	bool resumable_left;
	int fd;

	/* A run that was killed between these steps may have left such a directory. */
	temporaries_sweep(parent, place_is_private(p, parent), &resumable_left);
	for (int i = 0; i < TRIES; i++) {
		fd = make_temporary_dir(p, parent, marker, mode, temporary);
		if (fd < 0)
			continue;
		if (renameat(parent, temporary, parent, name) == 0)
			return fd;
		remove_marked_dir(parent, temporary, marker, fd);
		if (is_name_in_use(errno)) {
			errno = EEXIST;
			return -1;
		}
	}
	return make_marked_dir(p, parent, name, marker, mode);
}
