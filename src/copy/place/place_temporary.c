/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/place_temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/io.h"
#include "copy/names/own_name.h"

enum {
	NO_WAIT = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
	OPEN_FLAGS = O_RDWR | NO_WAIT,
	TRIES = 8, /* if other runs keep taking the name */
	RENAMED_WITHIN_S = 60, /* a run renames a temporary soon after it set its final mode */
};

/* ---- names ----------------------------------------------------------------------------- */

static uint64_t hash_user_name(const char *name, uid_t user)
{
	return XXH3_64bits_withSeed(name, strlen(name), user);
}

bool temporary_is(const char *name)
{
	enum own_name_kind kind = own_name_kind(name);

	return kind == NAME_HASHED || kind == NAME_RANDOM;
}

bool temporary_is_marker(const char *name)
{
	return own_name_kind(name) == NAME_MARKER;
}

int temporary_name(const char *name, uid_t user, char to[static OWN_NAME_ROOM])
{
	return own_name_random(hash_user_name(name, user), to);
}

/* ---- files ----------------------------------------------------------------------------- */

/* 0: locked.  1: another process holds the lock.  -1: the file system has no locks. */
static int lock_file(int fd)
{
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? 1 : -1;
	}
	return 0;
}

/* Does the name still lead to the locked inode st?  1, 0, -1 with errno. */
static int is_still_named(int dirfd, const char *name, const struct stat *st)
{
	struct stat named;

	if (fstatat(dirfd, name, &named, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -1;
	return named.st_dev == st->st_dev && named.st_ino == st->st_ino;
}

/* Is st as an interrupted run leaves an incomplete file?  Its mode was never another one, so no
 * other user can have it open. */
static bool is_leftover(const struct stat *st, uid_t user)
{
	return S_ISREG(st->st_mode) && (st->st_mode & 07777) == 0600 && st->st_uid == user &&
	       st->st_nlink == 1;
}

static void close_temporary(struct temporary *t)
{
	close_fd(t->fd);
	t->fd = -1;
}

/* Removes a temporary that was just made.  Returns -1, with errno preserved. */
static int remove_just_made(int dirfd, struct temporary *t)
{
	int err = errno;

	unlinkat(dirfd, t->name, 0);
	close_temporary(t);
	errno = err;
	return -1;
}

/* Creates and locks t->name.  0; 1: another process took or removed it at once; -1 with errno. */
static int make_locked(int dirfd, struct temporary *t)
{
	int named;

	t->fd = RETRIED(openat(dirfd, t->name, OPEN_FLAGS | O_CREAT | O_EXCL, 0600));
	if (t->fd < 0)
		return -1;
	if (fstat(t->fd, &t->st))
		return remove_just_made(dirfd, t);
	/* On a file system without locks no run takes over a temporary. */
	if (lock_file(t->fd) == 1)
		return 1;
	named = is_still_named(dirfd, t->name, &t->st);
	if (named < 0)
		return remove_just_made(dirfd, t);
	return named ? 0 : 1;
}

/* Opens and locks what an earlier run left as t->name.  0; 1: it is gone, try again; -1: it cannot
 * be taken over. */
static int take_over_leftover(int dirfd, bool resume, uid_t user, uid_t owner, struct temporary *t)
{
	int locked, named;

	t->fd = RETRIED(openat(dirfd, t->name, OPEN_FLAGS));
	if (t->fd < 0)
		return errno == ENOENT ? 1 : -1;
	locked = lock_file(t->fd);
	t->beside = locked == 1;
	if (locked != 0 || fstat(t->fd, &t->st))
		return -1;
	named = is_still_named(dirfd, t->name, &t->st);
	if (named <= 0)
		return named < 0 ? -1 : 1;
	if (!is_leftover(&t->st, user)) {
		/* A run died just before the rename, or this is a hard link.  Others may have had
		 * rights to the file, so it is removed. */
		if (!S_ISREG(t->st.st_mode) ||
		    (t->st.st_uid != user && (user != 0 || t->st.st_uid != owner)))
			return -1;
		return unlinkat(dirfd, t->name, 0) == 0 ? 1 : -1;
	}
	t->resumed = resume && t->st.st_size > 0;
	return !t->resumed && t->st.st_size > 0 && ftruncate(t->fd, 0) ? -1 : 0;
}

static int make_random(int dirfd, const char *name, uid_t user, struct temporary *t)
{
	int ret = 1;

	t->random = true;
	for (int i = 0; ret && i < TRIES; i++) {
		if (temporary_name(name, user, t->name))
			return -1;
		/* Another run may sweep the temporary before it is locked. */
		ret = make_locked(dirfd, t);
		if (ret < 0 && errno != EEXIST)
			return -1;
		if (ret)
			close_temporary(t);
	}
	if (ret)
		errno = EEXIST;
	return ret ? -1 : 0;
}

int temporary_open(int dirfd, bool is_private, const char *name, uid_t user, uid_t owner,
		   struct temporary *t)
{
	int ret = 1;

	t->fd = -1;
	t->random = t->resumed = t->nameless = t->beside = false;
	own_name_hashed(hash_user_name(name, user), t->name);
	for (int i = 0; is_private && ret == 1 && i < TRIES; i++) {
		ret = make_locked(dirfd, t);
		if (ret < 0 && errno != EEXIST)
			return -1;
		if (ret) {
			close_temporary(t);
			ret = take_over_leftover(dirfd, false, user, owner, t);
		}
		if (ret == 0)
			return 0;
		close_temporary(t);
	}
	return make_random(dirfd, name, user, t);
}

int temporary_resume(int dirfd, const char *name, uid_t user, struct temporary *t)
{
	struct stat st;

	t->fd = -1;
	t->random = t->resumed = t->nameless = t->beside = false;
	own_name_hashed(hash_user_name(name, user), t->name);
	if (fstatat(dirfd, t->name, &st, AT_SYMLINK_NOFOLLOW) || st.st_size == 0 ||
	    !is_leftover(&st, user))
		return 0;
	if (take_over_leftover(dirfd, true, user, user, t) == 0 && t->resumed)
		return 1;
	close_temporary(t);
	return 0;
}

/* ---- nameless files -------------------------------------------------------------------- */

int temporary_nameless(int dirfd, mode_t mode, struct temporary *t)
{
	t->random = t->resumed = t->beside = false;
	t->nameless = true;
	t->name[0] = '\0';
	t->fd = RETRIED(openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
	return t->fd < 0 ? -1 : 0;
}

int temporary_link_fd(int fd, int dirfd, const char *name, int proc)
{
	/* Before Linux 6.10 AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH. */
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
	for (int i = 0; i < TRIES; i++) {
		if (temporary_name(name, user, t->name))
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

/* ---- directories ----------------------------------------------------------------------- */

int temporary_dir_lock(int dirfd, const char *name, int fd)
{
	struct stat st;

	if (lock_file(fd) == 1 || fstat(fd, &st))
		return -1;
	return is_still_named(dirfd, name, &st) == 1 ? 0 : -1;
}

/* Removes the marker from a directory that has nothing else in it, because a run was killed before
 * it renamed the directory to DST.  False: there is more in it. */
static bool remove_lone_marker(int fd)
{
	int in = RETRIED(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *dir = in < 0 ? NULL : fdopendir(in);
	char marker[OWN_NAME_ROOM] = "";
	bool more = dir == NULL;
	struct dirent *e;

	if (!dir)
		close_fd(in);
	while (!more && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		more = *marker || own_name_kind(e->d_name) != NAME_MARKER;
		if (!more)
			strcpy(marker, e->d_name);
	}
	if (dir)
		closedir(dir);
	return !more && (!*marker || unlinkat(fd, marker, 0) == 0);
}

static int remove_stale_dir(int dirfd, const char *name)
{
	int fd = RETRIED(openat(dirfd, name, O_RDONLY | O_DIRECTORY | NO_WAIT)), ret = -1;
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && lock_file(fd) == 0 && is_still_named(dirfd, name, &st) == 1 &&
	    remove_lone_marker(fd))
		ret = unlinkat(dirfd, name, AT_REMOVEDIR);
	close_fd(fd);
	return ret;
}

/* ---- removing temporaries -------------------------------------------------------------- */

/* A file may be locked through any descriptor, so O_RDONLY is enough where the mode allows no more.
 */
static int open_to_lock(int dirfd, const char *name)
{
	int fd = RETRIED(openat(dirfd, name, OPEN_FLAGS));

	return fd < 0 && errno == EACCES ? RETRIED(openat(dirfd, name, O_RDONLY | NO_WAIT)) : fd;
}

/* A temporary has a final mode that denies us access, so it cannot be locked.  Is the run that set
 * the mode over? */
static bool is_past_rename(const struct stat *st)
{
	return time(NULL) - st->st_ctim.tv_sec > RENAMED_WITHIN_S;
}

static int remove_stale_file(int dirfd, const char *name, struct stat *st)
{
	int fd = open_to_lock(dirfd, name), ret = -1;

	if (fd < 0)
		return errno == EACCES && is_past_rename(st) ? unlinkat(dirfd, name, 0) : -1;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && lock_file(fd) == 0 &&
	    is_still_named(dirfd, name, st) == 1)
		ret = unlinkat(dirfd, name, 0);
	close_fd(fd);
	return ret;
}

void temporary_sweep(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    (geteuid() != 0 && st.st_uid != geteuid()))
		return;
	if (S_ISREG(st.st_mode))
		remove_stale_file(dirfd, name, &st);
	else if (!S_ISDIR(st.st_mode))
		unlinkat(dirfd, name, 0);
	else if (own_name_kind(name) == NAME_RANDOM)
		remove_stale_dir(dirfd, name);
}

void temporary_forget(int dirfd, const char *name, uid_t user)
{
	char temporary[OWN_NAME_ROOM];

	own_name_hashed(hash_user_name(name, user), temporary);
	temporary_sweep(dirfd, temporary);
}

/* Could a run take over this temporary, if the directory is private? */
static bool is_resumable(int dirfd, const char *name, bool *ours)
{
	struct stat st;

	*ours = fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid();
	return *ours && is_leftover(&st, geteuid());
}

void temporaries_sweep(int dirfd, bool is_private, bool *resumable_left)
{
	int fd = RETRIED(openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	bool ours;

	*resumable_left = false;
	if (!dir) {
		close_fd(fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		enum own_name_kind kind = own_name_kind(e->d_name);

		if (kind == NAME_RANDOM) {
			temporary_sweep(dirfd, e->d_name);
		} else if (kind == NAME_HASHED) {
			if (is_resumable(dirfd, e->d_name, &ours) && is_private)
				*resumable_left = true;
			else if (ours)
				temporary_sweep(dirfd, e->d_name);
		}
	}
	closedir(dir);
}
