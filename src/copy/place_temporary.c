/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/io.h"

enum {
	OPEN_FLAGS = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
	TRIES = 8,
	HASH_DIGITS = 16,
	SUFFIX_DIGITS = 8,
};
static const char prefix[] = ".sluice.";

/* 0: locked. 1: by somebody else. -1: can't be locked. */
static int lock_file(int fd)
{
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? 1 : -1;
	}
	return 0;
}

/* Is fd (locked by us) still what that name says? */
static bool still_named(int dirfd, const char *name, const struct stat *st)
{
	struct stat named;

	return fstatat(dirfd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       named.st_dev == st->st_dev && named.st_ino == st->st_ino;
}

static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1;
}

/* 0: taken. 1: gone meanwhile, try again. -1: not for us. */
static int take_over(int dirfd, struct temporary *t)
{
	struct stat st;

	t->fd = openat(dirfd, t->name, OPEN_FLAGS | O_CREAT, 0600);
	if (t->fd < 0)
		return -1;
	if (lock_file(t->fd) != 0 || fstat(t->fd, &st))
		return -1;
	if (!still_named(dirfd, t->name, &st))
		return 1;
	if (!is_ours(&st))
		return -1;
	return ftruncate(t->fd, 0) || fchmod(t->fd, 0600) ? -1 : 0;
}

static int make_random(int dirfd, uint64_t hash, struct temporary *t)
{
	struct stat st;
	uint32_t suffix;

	t->random = true;
	for (int i = 0; i < TRIES; i++) {
		if (getrandom(&suffix, sizeof suffix, 0) != sizeof suffix)
			return -1;
		snprintf(t->name, sizeof t->name, "%s%016" PRIx64 ".%08" PRIx32, prefix, hash,
			 suffix);
		t->fd = openat(dirfd, t->name, OPEN_FLAGS | O_CREAT | O_EXCL, 0600);
		if (t->fd < 0 && errno != EEXIST)
			return -1;
		if (t->fd < 0)
			continue;
		/* Somebody who sweeps may have come before the lock. */
		if (lock_file(t->fd) != 1 && fstat(t->fd, &st) == 0 &&
		    still_named(dirfd, t->name, &st))
			return 0;
		close_fd(t->fd);
		t->fd = -1;
	}
	errno = EEXIST;
	return -1;
}

int temporary_open(int dirfd, const char *name, struct temporary *t)
{
	uint64_t hash = XXH3_64bits_withSeed(name, strlen(name), geteuid());
	int ret = 1;

	*t = (struct temporary){.fd = -1};
	snprintf(t->name, sizeof t->name, "%s%016" PRIx64, prefix, hash);
	for (int i = 0; ret == 1 && i < TRIES; i++) {
		ret = take_over(dirfd, t);
		if (ret == 0)
			return 0;
		close_fd(t->fd);
		t->fd = -1;
	}
	return make_random(dirfd, hash, t);
}

static bool has_suffix(const char *name)
{
	static const char hex[] = "0123456789abcdef";
	size_t at = sizeof prefix - 1;

	return strncmp(name, prefix, at) == 0 && strspn(name + at, hex) == HASH_DIGITS &&
	       name[at + HASH_DIGITS] == '.' &&
	       strspn(name + at + HASH_DIGITS + 1, hex) == SUFFIX_DIGITS &&
	       name[at + HASH_DIGITS + 1 + SUFFIX_DIGITS] == '\0';
}

static void sweep_one(int dirfd, const char *name)
{
	struct stat st;
	int fd = openat(dirfd, name, OPEN_FLAGS);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && is_ours(&st) && lock_file(fd) == 0 &&
	    still_named(dirfd, name, &st))
		unlinkat(dirfd, name, 0);
	close_fd(fd);
}

void temporaries_sweep(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		close_fd(fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		if (has_suffix(e->d_name))
			sweep_one(dirfd, e->d_name);
	}
	closedir(dir);
}
