/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Directories are known by what they were when they were met: device and inode.  Those that are
 * not in use stay open as long as there is room; one that was closed is found again by walking from
 * the nearest one that is open, name by name, and is no good if it is another one by then.
 */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <fcntl.h>
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
	d->fd = -1;
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

/* ---- the cache: with the lock held ------------------------------------------------------ */

static void unused_add(struct place *p, struct place_dir *d)
{
	d->older = p->newest;
	d->newer = NULL;
	if (p->newest)
		p->newest->newer = d;
	else
		p->oldest = d;
	p->newest = d;
}

static void unused_remove(struct place *p, struct place_dir *d)
{
	if (d->newer)
		d->newer->older = d->older;
	else
		p->newest = d->older;
	if (d->older)
		d->older->newer = d->newer;
	else
		p->oldest = d->newer;
	d->newer = d->older = NULL;
}

/* keep: somebody is about to use it. */
static void trim(struct place *p, const struct place_dir *keep)
{
	struct place_dir *d;

	while (p->open > DIRS_OPEN_MAX && (d = p->oldest) != NULL && d != keep) {
		unused_remove(p, d);
		close_fd(d->fd);
		d->fd = -1;
		p->open--;
	}
}

static struct place_dir *real(struct place_dir *d)
{
	return d && !d->is_target ? d : NULL;
}

static int open_in(struct place_dir *up, struct place_dir *d)
{
	struct place *p = d->place;
	char shown[SHOWN_ROOM];
	struct stat st;

	d->fd = dir_open(up->fd, d->name, &st);
	if (d->fd < 0) {
		place_path(d, "", shown, sizeof shown);
		return fail("open directory %s again: %m", shown);
	}
	if (st.st_dev != d->dev || st.st_ino != d->ino) {
		close_fd(d->fd);
		d->fd = -1;
		place_path(d, "", shown, sizeof shown);
		return fail("open directory %s again: it is another one now", shown);
	}
	p->open++;
	unused_add(p, d);
	trim(p, d);
	return 0;
}

/* Up to one that is open, and down again. */
static int open_again(struct place_dir *d)
{
	struct place_dir *at = d;

	while (at->fd < 0) {
		struct place_dir *up = real(at->up);

		if (!up)
			up = d->place->top;
		up->below = at;
		at = up;
	}
	while (at != d) {
		if (open_in(at, at->below))
			return -1;
		at = at->below;
	}
	return 0;
}

/* ---- for all others --------------------------------------------------------------------- */

void dir_add(struct place_dir *d, int fd)
{
	struct place *p = d->place;

	pthread_mutex_lock(&p->lock);
	d->next = p->dirs;
	p->dirs = d;
	d->fd = fd;
	if (fd >= 0) {
		p->open++;
		unused_add(p, d);
		trim(p, NULL);
	}
	pthread_mutex_unlock(&p->lock);
}

int dir_hold(struct place_dir *d)
{
	struct place *p = d->place;
	int fd = -1;

	pthread_mutex_lock(&p->lock);
	if (d->is_target) {
		fd = p->top->fd;
	} else if (d->fd >= 0 || open_again(d) == 0) {
		if (d->users++ == 0)
			unused_remove(p, d);
		fd = d->fd;
	}
	pthread_mutex_unlock(&p->lock);
	return fd;
}

void dir_release(struct place_dir *d)
{
	struct place *p = d->place;

	if (d->is_target)
		return;
	pthread_mutex_lock(&p->lock);
	if (--d->users == 0) {
		unused_add(p, d);
		trim(p, NULL);
	}
	pthread_mutex_unlock(&p->lock);
}

/* A run that did not come to its end gives back the rights that it took. */
static void give_back(struct place_dir *d)
{
	int fd = d->loosened && !d->place->completed ? dir_hold(d) : -1;

	if (fd >= 0) {
		metadata_chmod(d->place, fd, d->was);
		dir_release(d);
	}
}

static void dir_free(struct place_dir *d)
{
	xattrs_free(d->xattrs);
	kept_free(d->kept);
	led_free(d->led);
	close_fd(d->fd);
	free(d);
}

void dirs_free(struct place *p)
{
	struct place_dir *d;

	for (d = p->dirs; d; d = d->next)
		give_back(d);
	while ((d = p->dirs) != NULL) {
		p->dirs = d->next;
		dir_free(d);
	}
	if (!p->top)
		return;
	if (p->top->fd == p->spot.dirfd)
		p->top->fd = -1;
	dir_free(p->top);
}
