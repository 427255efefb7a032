/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_DIR_H
#define COPY_WALK_WALK_DIR_H

/*
 * Directories of a source and their descriptors.
 *
 * Their descriptors are held as copy/names/held_dir.h says.  Directories that the user named
 * are opened by that path, all others by their name in their parent, which is no symbolic link
 * unless links are followed.
 *
 * A directory lives as long as somebody has a reference to it: what is in it, or waits to be
 * sent from it.  All calls from any thread.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "copy/names/held_dir.h"
#include "protocol/message.h"

struct walk_dir;
struct walk_dirs {
	struct held_dirs held; /* descriptors */
};
void walk_dirs_init(struct walk_dirs *all);
void walk_dirs_destroy(struct walk_dirs *all); /* all of them are gone */

struct walk_dir {
	struct walk_dirs *all;
	struct walk_dir *parent; /* a reference; NULL: none */
	char *path; /* as the user wrote it; NULL: it is opened by name */
	unsigned depth;
	bool follow; /* name may be a symbolic link */
	bool listable; /* opened for reading, not only to lead through */
	struct held_dir held;

	/* What the sink is told; id is filled in by whoever tells. */
	uint32_t id, want, flags;
	struct record_attr a;
	_Atomic uint64_t announced; /* lanes that have sent its DIR, a bit for each */
	atomic_bool made; /* the sink had none of it, or of one that it is in, before this run */

	_Atomic unsigned refs;
	char name[]; /* at the sink; "" with DIR_CONTENTS */
};

struct walk_dir_opts {
	struct walk_dir *parent;
	const char *path; /* NULL: by name in parent */
	const char *name;
	uint32_t want, flags;
	bool follow;
	bool listable;
};
/* Open a directory, with one reference.  -1 with the failure; *out is there nonetheless if at
 * least its metadata could be had, else NULL. */
int walk_dir_open(struct walk_dirs *all, const struct walk_dir_opts *o, struct walk_dir **out);
struct walk_dir *walk_dir_get(struct walk_dir *d); /* NULL: nothing */
void walk_dir_put(struct walk_dir *d); /* NULL: nothing */
/* Is it one of those above itself? */
bool walk_dir_loops(const struct walk_dir *d);

/* Is it made, as far as is known? NULL: no. */
bool walk_dir_is_made(struct walk_dir *d);

/* Its descriptor, until it is let go of again. */
int walk_dir_use(struct walk_dir *d, int *fd);
void walk_dir_release(struct walk_dir *d);

void walk_attr_of(const struct stat *st, struct record_attr *a);

/* Paths of name (of something in d, or "") : as the user would write it, for messages, and from
 * the top of the transfer.  d NULL: name alone.  Longer ones are cut in front; returns where
 * in `to' it begins. */
const char *walk_shown(const struct walk_dir *d, const char *name, char *to, size_t size);
const char *walk_path(const struct walk_dir *d, const char *name, char *to, size_t size);

/* ---- what is in a directory, by its descriptor --------------------------------------- */

/* To read a regular file; anything else is opened without a side effect, or not at all. */
int walk_open_file(int dirfd, const char *name, bool follow);
/* For its metadata only. */
int walk_open_path(int dirfd, const char *name, bool follow);
/* Have a network file system ask its server what name is now: what its cache says may be older. */
int walk_refresh(int dirfd, const char *name);
int walk_stat(int dirfd, const char *name, bool follow, struct stat *st);
/* Bytes of a symbolic link's target, which fit in size; -1 with errno. */
ssize_t walk_read_link(int dirfd, const char *name, char *to, size_t size);
int walk_remove(int dirfd, const char *name);

#endif
