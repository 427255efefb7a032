/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_RESOLVE_H
#define COPY_PLACE_PLACE_RESOLVE_H

/*
 * From what the user wrote as DST to a held directory and a name in it.  Symbolic links that the
 * user named are followed here, once; after this nothing is looked up by a path again, but
 * --backup-dir, once.
 */

#include <limits.h>
#include <stdbool.h>
#include "copy/place/place.h"

struct spot {
	int dirfd; /* O_PATH; -1 when direct or nowhere */
	char name[NAME_MAX + 1]; /* in that directory; "": the directory is the target */
	bool direct; /* shown is no file to be replaced: open it as it stands */
	bool link; /* and a link of /proc to what some process has open */
	int own; /* and this process is that: the descriptor; -1 */
	bool dir_only; /* there is nothing, and it was written with a slash: no file goes there */
	bool nowhere; /* dry run: a directory that --mkpath would make is not there */
	char shown[PATH_MAX]; /* the target as the user wrote it, ~ expanded */
};

int spot_resolve(const struct place_opts *o, struct spot *out);
/* May it be written, as far as is known without opening or changing anything? 0 or -1. */
int spot_writable(const struct spot *s, bool inplace);
void spot_close(struct spot *s);
/* A direct one, to be written; EINTR is the caller's. */
int spot_open(const struct spot *s);
/* Of a direct one all is written: where another process has a regular file open, what was behind
 * that goes.  -1 with errno. */
int spot_truncate(const struct spot *s, int fd, uint64_t size);
/* The descriptor of this process that path leads to by links (/dev/stdout, /dev/fd/3, a link to one
 * of them); -1: it does not, or there is nothing. */
int spot_descriptor(const char *path);
/* That what is written there can't be read again, so that its source may not be removed, as a
 * failure. */
int spot_fail_keeps_nothing(const char *shown);
/* That it is no directory, and --mkpath, as a failure. */
int spot_fail_needs_dir(const struct place_opts *o, const struct spot *s);
/* --backup-dir, made if it is not there, O_PATH; relative to top. */
int backups_open(int top, const char *path);
/* The same as it is, or the last directory on the way to it that is there; -1: none. */
int backups_find(int top, const char *path);
/* /proc/self/fd, O_PATH: the way to the mode of what is open with O_PATH only. */
int procfs_open(void);

#endif
