/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_DST_H
#define COPY_PLACE_PLACE_DST_H

/*
 * Resolves the DST that the user wrote to a held directory and a name in it.  Symlinks in DST are
 * followed here, once.  After that only --backup-dir is looked up by a path, also once.
 */

#include <limits.h>
#include <stdbool.h>
#include "copy/place/place.h"

/* DST, resolved. */
struct dst {
	int dirfd; /* O_PATH; -1 if by_path or dir_missing */
	char name[NAME_MAX + 1]; /* in that directory; "": the directory itself is the target */
	bool by_path; /* DST is no file that can be replaced: it is opened by its path (shown) */
	bool is_procfs_link; /* by_path: a link below /proc to a file that some process has open */
	int own_fd; /* this process's descriptor that the link leads to; -1: none */
	bool dir_only; /* nothing exists there, and DST ends in a slash: it cannot become a file */
	bool dir_missing; /* dry run: the directory that --mkpath would make does not exist */
	char shown[PATH_MAX]; /* DST as the user wrote it, ~ expanded */
};

int dst_resolve(const struct place_opts *o, struct dst *out);
/* Checks, without opening or changing anything, whether the target may be written.  0 or -1. */
int dst_writable(const struct dst *s, bool inplace);
void dst_close(struct dst *s);
/* Opens a by_path target for writing.  The caller handles EINTR. */
int dst_open(const struct dst *s);
/* Everything was written to a by_path target.  If it is a regular file that another process has
 * open, cuts it to size.  -1 with errno. */
int dst_truncate(const struct dst *s, int fd, uint64_t size);
/* The descriptor of this process that path leads to by links (/dev/stdout, /dev/fd/3, a link to one
 * of them); -1: none. */
int dst_descriptor(const char *path);
/* Fails because what is written to shown cannot be read again, so that its source must not be
 * removed. */
int dst_fail_keeps_nothing(const char *shown);
/* Fails because the target is not a directory; the message names --mkpath. */
int dst_fail_needs_dir(const struct place_opts *o, const struct dst *s);
/* Opens --backup-dir (O_PATH), which is relative to top.  Makes it if it is missing. */
int backups_open(int top, const char *path);
/* As backups_open(), without making it: --backup-dir, or the deepest directory on its path that
 * exists; -1 with errno, ENOENT: none. */
int backups_find(int top, const char *path);
/* As backups_open(), but -1 with errno if it is missing. */
int backups_find_whole(int top, const char *path);
/* Opens the directory that contains --backup-dir, whose last component is written to name.  -1 if
 * there is none. */
int backups_find_parent(int top, const char *path, char name[static NAME_MAX + 1]);
/* /proc/self/fd, O_PATH.  The mode of a descriptor opened with O_PATH can be set through it. */
int procfs_open(void);

#endif
