/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/held_dir.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"

void held_dirs_init(struct held_dirs *all, int (*open)(const struct held_dir *d, int up_fd),
		    int (*fail)(const struct held_dir *d, int error))
{
	*all = (struct held_dirs){.open = open, .fail = fail};
	pthread_mutex_init(&all->lock, NULL);
}

void held_dirs_destroy(struct held_dirs *all)
{
	pthread_mutex_destroy(&all->lock);
}

/* ---- call with the lock held ------------------------------------------------------------ */

static void remove_idle(struct held_dirs *all, struct held_dir *d)
{
	*(d->newer ? &d->newer->older : &all->newest) = d->older;
	*(d->older ? &d->older->newer : &all->oldest) = d->newer;
	d->newer = d->older = NULL;
	all->idle--;
}

/* Closes the oldest idle directory if there are too many, but never d, which may be used next. */
static void add_idle(struct held_dirs *all, struct held_dir *d)
{
	struct held_dir *oldest;

	d->older = all->newest;
	d->newer = NULL;
	*(all->newest ? &all->newest->newer : &all->oldest) = d;
	all->newest = d;
	if (++all->idle <= HELD_DIRS_MAX)
		return;
	oldest = all->oldest;
	remove_idle(all, oldest);
	close_fd(oldest->fd);
	oldest->fd = -1;
}

static int reopen_held_dir(struct held_dirs *all, struct held_dir *d)
{
	struct stat st;
	int fd = all->open(d, d->up ? d->up->fd : -1);

	if (fd < 0)
		return all->fail(d, errno);
	if (fstat(fd, &st) || st.st_dev != d->dev || st.st_ino != d->ino) {
		close_fd(fd);
		return all->fail(d, 0);
	}
	d->fd = fd;
	add_idle(all, d);
	return 0;
}

/* Goes up to the nearest directory that is open or has no up, and opens the others downward. */
static int reopen_chain(struct held_dirs *all, struct held_dir *d)
{
	struct held_dir *at = d;

	d->below = NULL;
	while (at->up && at->up->fd < 0) {
		at->up->below = at;
		at = at->up;
	}
	for (; at; at = at->below) {
		if (reopen_held_dir(all, at))
			return -1;
	}
	return 0;
}

/* ---- interface -------------------------------------------------------------------------- */

void held_dir_add(struct held_dirs *all, struct held_dir *d, int fd)
{
	pthread_mutex_lock(&all->lock);
	d->fd = fd;
	if (fd >= 0)
		add_idle(all, d);
	pthread_mutex_unlock(&all->lock);
}

int held_dir_use(struct held_dirs *all, struct held_dir *d)
{
	int fd = -1;

	pthread_mutex_lock(&all->lock);
	if (d->fd >= 0 || reopen_chain(all, d) == 0) {
		if (d->users++ == 0)
			remove_idle(all, d);
		fd = d->fd;
	}
	pthread_mutex_unlock(&all->lock);
	return fd;
}

void held_dir_release(struct held_dirs *all, struct held_dir *d)
{
	pthread_mutex_lock(&all->lock);
	if (--d->users == 0)
		add_idle(all, d);
	pthread_mutex_unlock(&all->lock);
}

void held_dir_drop(struct held_dirs *all, struct held_dir *d)
{
	pthread_mutex_lock(&all->lock);
	if (d->fd >= 0)
		remove_idle(all, d);
	pthread_mutex_unlock(&all->lock);
	close_fd(d->fd);
	d->fd = -1;
}
