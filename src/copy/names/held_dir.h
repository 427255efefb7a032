/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_HELD_DIR_H
#define COPY_NAMES_HELD_DIR_H

/*
 * Holds any number of directories by descriptors.  Besides those in use at most HELD_DIRS_MAX stay
 * open.  A directory that was closed is opened again from the nearest open directory above it, name
 * by name.  It must then be the same device and inode.
 *
 * A held_dir is part of its owner's structure.  All calls from any thread; a call waits at most for
 * directories to be opened.
 */

#include <pthread.h>
#include <sys/types.h>

enum { HELD_DIRS_MAX = 192 };

struct held_dir {
	/* The directory that it is opened in; NULL: it is opened without one, or never closed. */
	struct held_dir *up;
	dev_t dev;
	ino_t ino;
	/* Under the lock: */
	int fd; /* -1: closed */
	unsigned users;
	/* in the list of directories that are open and not in use */
	struct held_dir *newer, *older;
	struct held_dir *below; /* on the path to one that is being opened again */
};

struct held_dirs {
	pthread_mutex_t lock;
	struct held_dir *newest, *oldest; /* open and not in use */
	unsigned idle; /* length of that list */
	/* Opens a new descriptor of d in up_fd (-1: d has no up).  -1 with errno. */
	int (*open)(const struct held_dir *d, int up_fd);
	/* Fails because d could not be opened again, with this errno; 0: another directory has its
	 * name now.  Returns -1. */
	int (*fail)(const struct held_dir *d, int error);
};

void held_dirs_init(struct held_dirs *all, int (*open)(const struct held_dir *d, int up_fd),
		    int (*fail)(const struct held_dir *d, int error));
/* Call after all its directories were dropped. */
void held_dirs_destroy(struct held_dirs *all);

/* Begins to hold d, whose up, dev and ino are set.  Takes fd; -1: d is closed. */
void held_dir_add(struct held_dirs *all, struct held_dir *d, int fd);
/* The descriptor of d, valid until held_dir_release(); -1 with a failure. */
int held_dir_use(struct held_dirs *all, struct held_dir *d);
void held_dir_release(struct held_dirs *all, struct held_dir *d);
/* Closes d.  Nothing may use it, or open anything in it, any more. */
void held_dir_drop(struct held_dirs *all, struct held_dir *d);

#endif
