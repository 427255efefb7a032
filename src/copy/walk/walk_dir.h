/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_DIR_H
#define COPY_WALK_WALK_DIR_H

/*
 * Directories of a source, and their descriptors (copy/names/held_dir.h).
 *
 * A directory that the user named is opened by that path, any other by its name in its parent.
 * That name must not be a symlink, unless links are followed.
 *
 * A directory lives as long as it has references: by what is in it, and by what waits to be sent
 * from it.  All calls from any thread.
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
	struct held_dirs held;
};
void walk_dirs_init(struct walk_dirs *all);
void walk_dirs_destroy(struct walk_dirs *all); /* call when none is left */

struct walk_dir {
	struct walk_dirs *all;
	struct walk_dir *parent; /* a reference; NULL: none */
	char *path; /* as the user wrote it; NULL: opened by name */
	unsigned depth;
	bool follow; /* name may be a symlink */
	bool listable; /* opened for reading, not only as a component of paths */
	struct held_dir held;

	/* Sent to the sink; the sender sets id. */
	uint32_t id, want, flags;
	struct record_attr a;
	_Atomic uint64_t announced; /* lanes that have sent its DIR, a bit for each */
	atomic_bool made; /* this run made it at the sink, or a directory that contains it */

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
/* Opens a directory; the caller gets one reference.  -1 with the failure: then *out is still set if
 * at least the metadata could be read, else NULL. */
int walk_dir_open(struct walk_dirs *all, const struct walk_dir_opts *o, struct walk_dir **out);
struct walk_dir *walk_dir_get(struct walk_dir *d); /* accepts NULL */
void walk_dir_put(struct walk_dir *d); /* accepts NULL */
/* Is it the same directory as one above it? */
bool walk_dir_loops(const struct walk_dir *d);

/* Is it known that this run made it at the sink?  NULL: false. */
bool walk_dir_is_made(struct walk_dir *d);

/* The descriptor, valid until walk_dir_release(). */
int walk_dir_use(struct walk_dir *d, int *fd);
void walk_dir_release(struct walk_dir *d);

void walk_attr_of(const struct stat *st, struct record_attr *a);

/* The path of name in d (name "": of d itself; d NULL: name alone).  walk_shown(): as the user
 * would write it, for messages.  walk_path(): from the top of the transfer.  A longer path is cut
 * at its front.  Returns where in `to' it begins. */
const char *walk_shown(const struct walk_dir *d, const char *name, char *to, size_t size);
const char *walk_path(const struct walk_dir *d, const char *name, char *to, size_t size);

/* ---- what is in a directory, by its descriptor --------------------------------------- */

/* Opens a regular file for reading.  Anything else is opened without side effects, or not at
 * all. */
int walk_open_file(int dirfd, const char *name, bool follow);
/* Opens the directory that path, which the user wrote, leads to.  -1 with errno. */
int walk_open_named_dir(const char *path);
/* Opens it for its metadata only. */
int walk_open_path(int dirfd, const char *name, bool follow);
/* Makes a network file system ask its server for name, because its cache may be older. */
int walk_refresh(int dirfd, const char *name);
int walk_stat(int dirfd, const char *name, bool follow, struct stat *st);
/* Reads a symlink's target, which must fit in size.  Returns its length; -1 with errno. */
ssize_t walk_read_link(int dirfd, const char *name, char *to, size_t size);
int walk_remove(int dirfd, const char *name);

/* The marker of moves that are not completed (copy/source/source_marker.c): a file with a line for
 * each target.  target: msg_total.  All return -1 with errno, also if somebody else made the file.
 */
enum walk_marker {
	MARKER_NONE,
	MARKER_EMPTY, /* a run was killed before it removed anything */
	MARKER_OURS, /* for this target only */
	MARKER_OTHERS, /* for other targets, too, or with contents that are not ours */
};
int walk_marker_find(int dirfd, uint64_t target);
/* Is there a marker in the directory fd, or in one above it?  Closes fd, which may be -1. */
enum walk_marker_place {
	MARKER_NOT_UPWARD,
	MARKER_HERE,
	MARKER_ABOVE,
} walk_marker_find_upward(int fd);
/* Adds the target.  It is on disk then.  ENOSPC: there are too many. */
int walk_marker_create(int dirfd, uint64_t target);
/* Removes the target, and the marker if it is for no other. */
int walk_marker_remove(int dirfd, uint64_t target);

#endif
