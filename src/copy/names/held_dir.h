/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_HELD_DIR_H
#define COPY_NAMES_HELD_DIR_H

/*
 * Directories that are held by descriptors, however many there are: beside those in use at most
 * HELD_DIRS_MAX stay open.  One that was closed is opened again from the nearest directory above it
 * that is open, name by name, and must then be the one that it was: the same device and inode.
 *
 * A held_dir is part of its owner's structure.  All calls from any thread; each waits at most for
 * the opening of directories.
 */

#include <pthread.h>
#include <sys/types.h>

enum { HELD_DIRS_MAX = 192 };

struct held_dir {
	struct held_dir *up; /* what it is opened in; NULL: it is opened without one, or never
				closed */
	dev_t dev;
	ino_t ino;
	/* The lock's: */
	int fd; /* -1: closed */
	unsigned users;
	struct held_dir *newer, *older; /* of those that are open and not in use */
	struct held_dir *below; /* on the way to one that is opened again */
};

struct held_dirs {
	pthread_mutex_t lock;
	struct held_dir *newest, *oldest; /* open and not in use */
	unsigned idle; /* how many these are */
	/* A new descriptor of d, opened in up_fd (-1: d has no up); -1 with errno. */
	int (*open)(const struct held_dir *d, int up_fd);
	/* d could not be opened again, with errno; 0: another directory has its name now.  Returns
	 * -1 with a failure. */
	int (*fail)(const struct held_dir *d, int error);
};

void held_dirs_init(struct held_dirs *all, int (*open)(const struct held_dir *d, int up_fd),
		    int (*fail)(const struct held_dir *d, int error));
/* All its directories have been dropped. */
void held_dirs_destroy(struct held_dirs *all);

/* Begin to hold d, whose up, dev and ino are set, by fd: all's from here on.  -1: it is closed. */
void held_dir_add(struct held_dirs *all, struct held_dir *d, int fd);
/* Its descriptor, until held_dir_release(); -1 with a failure. */
int held_dir_use(struct held_dirs *all, struct held_dir *d);
void held_dir_release(struct held_dirs *all, struct held_dir *d);
/* Close it; nobody uses it, nor opens anything in it again. */
void held_dir_drop(struct held_dirs *all, struct held_dir *d);

#endif
