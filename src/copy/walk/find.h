/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_FIND_H
#define COPY_WALK_FIND_H

/*
 * Expands sources as the user wrote them: with expand set ~, ~user and glob patterns.  A name that
 * exists literally takes precedence over the pattern.  No shell is involved.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct found_path {
	char *path;
	unsigned want; /* the number of the name that it came from */
	bool missing; /* it does not exist, or nothing matches the pattern */
	unsigned twin; /* 1 + the index of an earlier path with the same last component; 0: none */
};
struct found {
	struct found_path *paths; /* in the user's order; those of a pattern are sorted */
	unsigned count;
	size_t room;
	bool has_links; /* a path may be a symbolic link */
};
/* A name or pattern without a file also goes to out, as missing, so that the others are copied. */
int find_sources(char *const *names, unsigned count, bool expand, struct found *out);
/* Is a path that exists the same file as another one, or in it?  Follows links; true also if that
 * cannot be known. */
bool found_overlap(const struct found *f);
/* -1: it is not a directory, or cannot be looked at. */
int find_dir(const char *path, struct stat *st);
void found_free(struct found *f);
/* Checks, without opening it, whether this file or stream can be read, as far as that can be known.
 * 0 with its mode; -1: OUT_NO_SOURCE, or OUT_FILE, also for a directory. */
int find_readable(const char *name, mode_t *mode);

#endif
