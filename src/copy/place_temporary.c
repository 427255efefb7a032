/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place_temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
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
static const char marker[] = ".sluice.marker.";
static const char hex[] = "0123456789abcdef";

/* ---- names ----------------------------------------------------------------------------- */

static void put_hex(char *to, uint64_t v, unsigned digits)
{
	for (unsigned i = 0; i < digits; i++)
		to[i] = hex[(v >> (4 * (digits - 1 - i))) & 15];
	to[digits] = '\0';
}

static void name_of(const char *name, uid_t user, char to[static TEMPORARY_NAME])
{
	memcpy(to, prefix, sizeof prefix);
	put_hex(to + sizeof prefix - 1, XXH3_64bits_withSeed(name, strlen(name), user),
		HASH_DIGITS);
}

static int add_suffix(char name[static TEMPORARY_NAME])
{
	char *at = name + sizeof prefix - 1 + HASH_DIGITS;
	uint32_t suffix;

	if (getrandom(&suffix, sizeof suffix, 0) != sizeof suffix)
		return -1;
	*at = '.';
	put_hex(at + 1, suffix, SUFFIX_DIGITS);
	return 0;
}

static const char *hash_end(const char *name)
{
	size_t at = sizeof prefix - 1;

	if (strncmp(name, prefix, at) != 0 || strspn(name + at, hex) != HASH_DIGITS)
		return NULL;
	return name + at + HASH_DIGITS;
}

static bool has_suffix(const char *name)
{
	const char *end = hash_end(name);

	return end && *end == '.' && strspn(end + 1, hex) == SUFFIX_DIGITS &&
	       end[1 + SUFFIX_DIGITS] == '\0';
}

static bool has_none(const char *name)
{
	const char *end = hash_end(name);

	return end && *end == '\0';
}

bool temporary_is(const char *name)
{
	return has_none(name) || has_suffix(name);
}

bool temporary_is_marker(const char *name)
{
	size_t at = sizeof marker - 1;

	return strncmp(name, marker, at) == 0 && strspn(name + at, hex) == HASH_DIGITS &&
	       name[at + HASH_DIGITS] == '\0';
}

/* ---- files ----------------------------------------------------------------------------- */

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

static bool is_file_of(const struct stat *st, uid_t owner)
{
	return S_ISREG(st->st_mode) && st->st_uid == owner && st->st_nlink == 1;
}

/* 0: it is ours, and locked. 1: gone meanwhile, try again. -1: not for us. */
static int lock_named(int dirfd, struct temporary *t)
{
	if (lock_file(t->fd) != 0 || fstat(t->fd, &t->st))
		return -1;
	return still_named(dirfd, t->name, &t->st) ? 0 : 1;
}

/* The same of a new one. */
static int make_new(int dirfd, struct temporary *t)
{
	t->fd = openat(dirfd, t->name, OPEN_FLAGS | O_CREAT | O_EXCL, 0600);
	if (t->fd < 0)
		return -1;
	/* Where nothing can be locked nobody takes it over either. */
	if (fstat(t->fd, &t->st) || lock_file(t->fd) == 1)
		return 1;
	return still_named(dirfd, t->name, &t->st) ? 0 : 1;
}

static int take_over(int dirfd, bool resume, uid_t user, uid_t owner, struct temporary *t)
{
	int ret;

	t->fd = openat(dirfd, t->name, OPEN_FLAGS);
	if (t->fd < 0)
		return errno == ENOENT ? 1 : -1;
	ret = lock_named(dirfd, t);
	if (ret)
		return ret;
	if (!is_file_of(&t->st, user)) {
		if (user != 0 || !is_file_of(&t->st, owner))
			return -1;
		/* Others had rights to it already. */
		return unlinkat(dirfd, t->name, 0) == 0 ? 1 : -1;
	}
	t->resumed = resume && t->st.st_size > 0;
	if (!t->resumed && t->st.st_size > 0 && ftruncate(t->fd, 0))
		return -1;
	if ((t->st.st_mode & 07777) != 0600 && fchmod(t->fd, 0600))
		return -1;
	t->st.st_mode = S_IFREG | 0600;
	return 0;
}

static void close_temporary(struct temporary *t)
{
	close_fd(t->fd);
	t->fd = -1;
}

static int make_random(int dirfd, struct temporary *t)
{
	t->random = true;
	for (int i = 0; i < TRIES; i++) {
		if (add_suffix(t->name))
			return -1;
		/* Somebody who sweeps may come before the lock. */
		if (make_new(dirfd, t) == 0)
			return 0;
		if (t->fd < 0 && errno != EEXIST)
			return -1;
		close_temporary(t);
	}
	errno = EEXIST;
	return -1;
}

int temporary_open(int dirfd, const char *name, uid_t user, uid_t owner, struct temporary *t)
{
	int ret = 1;

	t->fd = -1;
	t->random = t->resumed = t->nameless = false;
	name_of(name, user, t->name);
	for (int i = 0; ret == 1 && i < TRIES; i++) {
		ret = make_new(dirfd, t);
		if (ret < 0 && errno != EEXIST)
			return -1;
		if (ret) {
			close_temporary(t);
			ret = take_over(dirfd, false, user, owner, t);
		}
		if (ret == 0)
			return 0;
		close_temporary(t);
	}
	return make_random(dirfd, t);
}

int temporary_resume(int dirfd, const char *name, uid_t user, struct temporary *t)
{
	struct stat st;

	t->fd = -1;
	t->random = t->resumed = t->nameless = false;
	name_of(name, user, t->name);
	if (fstatat(dirfd, t->name, &st, AT_SYMLINK_NOFOLLOW) || st.st_size == 0 ||
	    !is_file_of(&st, user))
		return 0;
	if (take_over(dirfd, true, user, user, t) == 0 && t->resumed)
		return 1;
	close_temporary(t);
	return 0;
}

/* ---- without a name -------------------------------------------------------------------- */

int temporary_nameless(int dirfd, mode_t mode, struct temporary *t)
{
	t->random = t->resumed = false;
	t->nameless = true;
	t->name[0] = '\0';
	t->fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	return t->fd < 0 ? -1 : 0;
}

int temporary_link_fd(int fd, int dirfd, const char *name, int proc)
{
	/* Kernels before 6.10 let only those do it by the descriptor who may read anything. */
	static atomic_bool by_proc;
	char number[16];

	if (!atomic_load_explicit(&by_proc, memory_order_relaxed)) {
		if (linkat(fd, "", dirfd, name, AT_EMPTY_PATH) == 0)
			return 0;
		if (errno != ENOENT)
			return -1;
	}
	snprintf(number, sizeof number, "%d", fd);
	if (linkat(proc, number, dirfd, name, AT_SYMLINK_FOLLOW))
		return -1;
	atomic_store_explicit(&by_proc, true, memory_order_relaxed);
	return 0;
}

int temporary_link(const struct temporary *t, int dirfd, const char *name, int proc)
{
	return temporary_link_fd(t->fd, dirfd, name, proc);
}

int temporary_give_name(struct temporary *t, int dirfd, const char *name, uid_t user, int proc)
{
	lock_file(t->fd);
	name_of(name, user, t->name);
	for (int i = 0; i < TRIES; i++) {
		if (add_suffix(t->name))
			return -1;
		if (temporary_link(t, dirfd, t->name, proc) == 0) {
			t->nameless = false;
			t->random = true;
			return 0;
		}
		if (errno != EEXIST)
			return -1;
	}
	return -1;
}

/* ---- removing them --------------------------------------------------------------------- */

/* Is it of a run that is no more?  0: it is gone, or was not there. */
static int remove_stale(int dirfd, const char *name)
{
	struct stat st;
	int fd, ret = -1;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -1;
	if (S_ISDIR(st.st_mode) || (geteuid() != 0 && st.st_uid != geteuid()))
		return -1;
	if (!S_ISREG(st.st_mode))
		return unlinkat(dirfd, name, 0);
	fd = openat(dirfd, name, OPEN_FLAGS);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && lock_file(fd) == 0 &&
	    still_named(dirfd, name, &st))
		ret = unlinkat(dirfd, name, 0);
	close_fd(fd);
	return ret;
}

int temporary_name(int dirfd, const char *name, uid_t user, char to[static TEMPORARY_NAME])
{
	name_of(name, user, to);
	return remove_stale(dirfd, to) == 0 ? 0 : add_suffix(to);
}

void temporary_forget(int dirfd, const char *name, uid_t user)
{
	char temporary[TEMPORARY_NAME];

	name_of(name, user, temporary);
	temporary_sweep(dirfd, temporary);
}

/* A file with more links than one is somebody's other file. */
void temporary_sweep(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (!S_ISREG(st.st_mode) || st.st_nlink == 1))
		remove_stale(dirfd, name);
}

void temporaries_sweep(int dirfd, bool *others)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	*others = false;
	if (!dir) {
		close_fd(fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		if (has_suffix(e->d_name))
			temporary_sweep(dirfd, e->d_name);
		else if (has_none(e->d_name))
			*others = true;
	}
	closedir(dir);
}
