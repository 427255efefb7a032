/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/walk/walk_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

void walk_attr_of(const struct stat *st, struct record_attr *a)
{
	*a = (struct record_attr){
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.mtime_s = st->st_mtim.tv_sec,
		.mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
		.atime_s = st->st_atim.tv_sec,
		.atime_ns = (uint32_t)st->st_atim.tv_nsec,
	};
}

/* ---- paths --------------------------------------------------------------------------- */

struct path_builder {
	char *start, *at;
};

static void prepend_text(struct path_builder *p, const char *s)
{
	size_t len = strlen(s), room = (size_t)(p->at - p->start);

	if (len > room) {
		s += len - room;
		len = room;
	}
	p->at -= len;
	memcpy(p->at, s, len);
}

static struct path_builder begin_path(char *to, size_t size, const char *name)
{
	struct path_builder p = {.start = to, .at = to + size - 1};

	*p.at = '\0';
	prepend_text(&p, name);
	return p;
}

/* Prepends a component of the path. */
static void prepend_component(struct path_builder *p, const char *name)
{
	size_t len = strlen(name);

	if (*p->at && len > 0 && name[len - 1] != '/')
		prepend_text(p, "/");
	prepend_text(p, name);
}

const char *walk_shown(const struct walk_dir *d, const char *name, char *to, size_t size)
{
	struct path_builder p = begin_path(to, size, name);

	for (; d; d = d->parent) {
		prepend_component(&p, d->path ? d->path : d->name);
		if (d->path)
			break;
	}
	return p.at;
}

const char *walk_path(const struct walk_dir *d, const char *name, char *to, size_t size)
{
	struct path_builder p = begin_path(to, size, name);

	for (; d; d = d->parent)
		prepend_component(&p, d->name);
	return p.at;
}

/* ---- descriptors --------------------------------------------------------------------- */

enum { OPEN_FLAGS = O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

static int open_dir(const struct walk_dir *d, int parent_fd)
{
	int flags = OPEN_FLAGS | (d->listable ? O_RDONLY : O_PATH);

	if (d->path)
		return RETRIED(open(d->path, flags));
	return RETRIED(openat(parent_fd, d->name, flags | (d->follow ? 0 : O_NOFOLLOW)));
}

static const struct walk_dir *get_walk_dir(const struct held_dir *d)
{
	return (const struct walk_dir *)((const char *)d - offsetof(struct walk_dir, held));
}

static int open_held_walk_dir(const struct held_dir *d, int up_fd)
{
	return open_dir(get_walk_dir(d), up_fd);
}

static int fail_walk_dir_reopen(const struct held_dir *d, int error)
{
	char room[FAIL_TEXT_MAX];
	const char *shown = walk_shown(get_walk_dir(d), "", room, sizeof room);

	if (!error)
		return fail_as(OUT_CHANGED, "open %s: another directory has replaced it", shown);
	errno = error;
	return fail("open %s: %m", shown);
}

void walk_dirs_init(struct walk_dirs *all)
{
	held_dirs_init(&all->held, open_held_walk_dir, fail_walk_dir_reopen);
}

void walk_dirs_destroy(struct walk_dirs *all)
{
	held_dirs_destroy(&all->held);
}

int walk_dir_use(struct walk_dir *d, int *fd)
{
	*fd = held_dir_use(&d->all->held, &d->held);
	return *fd < 0 ? -1 : 0;
}

void walk_dir_release(struct walk_dir *d)
{
	held_dir_release(&d->all->held, &d->held);
}

/* ---- directories --------------------------------------------------------------------- */

static struct walk_dir *alloc_walk_dir(struct walk_dirs *all, const struct walk_dir_opts *o)
{
	size_t len = strlen(o->name) + 1;
	struct walk_dir *d = calloc(1, sizeof *d + len);

	if (d && o->path)
		d->path = strdup(o->path);
	if (!d || (o->path && !d->path)) {
		free(d);
		fail_as(OUT_MEMORY, "open %s: %m", o->path ? o->path : o->name);
		return NULL;
	}
	d->all = all;
	d->parent = walk_dir_get(o->parent);
	d->depth = o->parent ? o->parent->depth + 1 : 0;
	d->follow = o->follow;
	d->listable = o->listable;
	d->want = o->want;
	d->flags = o->flags;
	d->held.fd = -1;
	d->held.up = o->path ? NULL : &o->parent->held;
	atomic_init(&d->refs, 1);
	memcpy(d->name, o->name, len);
	return d;
}

/* Examines the directory without opening it. */
static int stat_walk_dir(const struct walk_dir *d, int parent_fd, struct stat *st)
{
	int ret = d->path ? stat(d->path, st)
			  : fstatat(parent_fd, d->name, st, d->follow ? 0 : AT_SYMLINK_NOFOLLOW);

	return ret == 0 && S_ISDIR(st->st_mode) ? 0 : -1;
}

int walk_dir_open(struct walk_dirs *all, const struct walk_dir_opts *o, struct walk_dir **out)
{
	struct walk_dir *d = alloc_walk_dir(all, o);
	char room[FAIL_TEXT_MAX];
	int parent_fd = -1, ret = 0, fd;
	struct stat st;

	*out = NULL;
	if (!d)
		return -1;
	if (!d->path && walk_dir_use(d->parent, &parent_fd)) {
		walk_dir_put(d);
		return -1;
	}
	fd = open_dir(d, parent_fd);
	if (fd < 0 || fstat(fd, &st))
		ret = fail_as(errno == ENOENT ? OUT_VANISHED : OUT_FILE, "open %s: %m",
			      walk_shown(d, "", room, sizeof room));
	if (ret == 0 || stat_walk_dir(d, parent_fd, &st) == 0) {
		d->held.dev = st.st_dev;
		d->held.ino = st.st_ino;
		walk_attr_of(&st, &d->a);
		*out = d;
	}
	if (!d->path)
		walk_dir_release(d->parent);
	held_dir_add(&all->held, &d->held, fd);
	if (*out)
		return ret;
	walk_dir_put(d);
	return -1;
}

struct walk_dir *walk_dir_get(struct walk_dir *d)
{
	if (d)
		atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
	return d;
}

void walk_dir_put(struct walk_dir *d)
{
	while (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) {
		struct walk_dir *parent = d->parent;

		held_dir_drop(&d->all->held, &d->held);
		free(d->path);
		free(d);
		d = parent;
	}
}

bool walk_dir_loops(const struct walk_dir *d)
{
	for (const struct walk_dir *up = d->parent; up; up = up->parent) {
		if (up->held.ino == d->held.ino && up->held.dev == d->held.dev)
			return true;
	}
	return false;
}

bool walk_dir_is_made(struct walk_dir *d)
{
	struct walk_dir *up = d;

	while (up && !atomic_load_explicit(&up->made, memory_order_relaxed))
		up = up->parent;
	/* The next call finds it at once. */
	if (up && up != d)
		atomic_store_explicit(&d->made, true, memory_order_relaxed);
	return up;
}

/* ---- what is in a directory ---------------------------------------------------------- */

int walk_open_file(int dirfd, const char *name, bool follow)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW);
	struct stat st;
	int fd;

	fd = RETRIED(openat(dirfd, name, flags));
	/* Another process has a lease on the file, which it gives up if this open waits. */
	if (fd < 0 && errno == EWOULDBLOCK && walk_stat(dirfd, name, follow, &st) == 0 &&
	    S_ISREG(st.st_mode))
		fd = RETRIED(openat(dirfd, name, flags & ~O_NONBLOCK));
	return fd;
}

int walk_open_named_dir(const char *path)
{
	return RETRIED(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

int walk_open_path(int dirfd, const char *name, bool follow)
{
	return RETRIED(openat(dirfd, name, O_PATH | (follow ? 0 : O_NOFOLLOW) | O_CLOEXEC));
}

int walk_refresh(int dirfd, const char *name)
{
	const int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC;
	struct statx st;

	/* Kernels and file systems without it have nothing to refresh either. */
	if (statx(dirfd, name, flags, STATX_BASIC_STATS, &st) == 0 || errno == ENOSYS ||
	    errno == EINVAL)
		return 0;
	return -1;
}

int walk_stat(int dirfd, const char *name, bool follow, struct stat *st)
{
	return fstatat(dirfd, name, st, follow ? 0 : AT_SYMLINK_NOFOLLOW);
}

ssize_t walk_read_link(int dirfd, const char *name, char *to, size_t size)
{
	ssize_t n = readlinkat(dirfd, name, to, size);

	if (n >= 0 && (size_t)n < size)
		return n;
	if (n >= 0)
		errno = ENAMETOOLONG;
	return -1;
}

int walk_remove(int dirfd, const char *name)
{
	return unlinkat(dirfd, name, 0);
}
