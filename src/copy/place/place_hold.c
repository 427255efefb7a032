/* SPDX-License-Identifier: Apache-2.0 */

/* Descriptors of the target's directories.  A directory that is opened again must be the inode that
 * it was. */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

enum { OPEN_FLAGS = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

struct place_dir *dir_new(struct place *p, struct place_dir *up, const char *name)
{
	size_t size = strlen(name) + 1;
	struct place_dir *d = calloc(1, sizeof *d + size);

	if (!d)
		return NULL;
	d->place = p;
	d->up = up;
	d->held.fd = -1;
	memcpy(d->name, name, size);
	return d;
}

int dir_open(int in, const char *name, struct stat *st)
{
	int fd = RETRIED(openat(in, name, O_RDONLY | OPEN_FLAGS));

	if (fd < 0 && errno == EACCES)
		fd = RETRIED(openat(in, name, O_PATH | OPEN_FLAGS));
	if (fd >= 0 && fstat(fd, st)) {
		close_fd(fd);
		return -1;
	}
	return fd;
}

int dir_reopen(int fd)
{
	return RETRIED(openat(fd, ".", O_RDONLY | OPEN_FLAGS));
}

static int sync_reopened(int fd, int (*sync)(int))
{
	int own = dir_reopen(fd);
	int ret = own < 0 ? -1 : sync(own);

	close_fd(own);
	return ret;
}

int dir_sync(int fd)
{
	return sync_reopened(fd, fsync);
}

int dir_sync_all(int fd)
{
	return sync_reopened(fd, syncfs);
}

/* ---- copy/names/held_dir.h -------------------------------------------------------------- */

static const struct place_dir *get_place_dir(const struct held_dir *d)
{
	return (const struct place_dir *)((const char *)d - offsetof(struct place_dir, held));
}

static int open_held_place_dir(const struct held_dir *d, int up_fd)
{
	struct stat st;

	return dir_open(up_fd, get_place_dir(d)->name, &st);
}

static int fail_place_dir_reopen(const struct held_dir *d, int error)
{
	const struct place_dir *dir = get_place_dir(d);
	char path[SHOWN_ROOM];
	const char *shown = place_path(dir, "", path, sizeof path) ? path : dir->place->dst.shown;

	if (!error)
		return fail("open directory %s again: another directory has replaced it", shown);
	errno = error;
	return fail("open directory %s again: %m", shown);
}

void dirs_init(struct place *p)
{
	held_dirs_init(&p->held, open_held_place_dir, fail_place_dir_reopen);
}

/* ---- adding and using -------------------------------------------------------------------- */

void dir_add(struct place_dir *d, int fd)
{
	struct place *p = d->place;
	struct place_dir *up = d->up && !d->up->is_target ? d->up : p->top;

	/* held.up and the descriptor must be set before another thread can find d. */
	d->held.up = &up->held;
	held_dir_add(&p->held, &d->held, fd);
	pthread_mutex_lock(&p->lock);
	d->next = p->dirs;
	p->dirs = d;
	d->order = p->dir_count++;
	if (d->is_target && *d->name) {
		d->next_target = p->targets;
		p->targets = d;
	}
	pthread_mutex_unlock(&p->lock);
}

int dir_use(struct place_dir *d)
{
	struct place *p = d->place;

	return d->is_target ? p->top->held.fd : held_dir_use(&p->held, &d->held);
}

void dir_release(struct place_dir *d)
{
	if (!d->is_target)
		held_dir_release(&d->place->held, &d->held);
}

/* An interrupted run restores the modes that it loosened. */
static void restore_dir_mode(struct place_dir *d)
{
	int fd = d->loosened && !d->place->completed ? dir_use(d) : -1;

	if (fd >= 0) {
		metadata_chmod(d->place, fd, d->mode_to_restore);
		dir_release(d);
	}
}

static void free_place_dir(struct place_dir *d)
{
	xattrs_free(d->xattrs);
	kept_free(d->kept);
	source_names_free(d->source_names);
	free(d);
}

void dirs_free(struct place *p)
{
	struct place_dir *d;

	for (d = p->dirs; d; d = d->next)
		restore_dir_mode(d);
	while ((d = p->dirs) != NULL) {
		p->dirs = d->next;
		held_dir_drop(&p->held, &d->held);
		free_place_dir(d);
	}
	held_dirs_destroy(&p->held);
	if (!p->top)
		return;
	if (p->top->held.fd != p->dst.dirfd)
		close_fd(p->top->held.fd);
	free_place_dir(p->top);
}
