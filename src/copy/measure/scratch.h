/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_MEASURE_SCRATCH_H
#define COPY_MEASURE_SCRATCH_H

/*
 * What rdbench reads and writes to measure a disk.  These are files without a name, in a directory
 * that the user named, which disappear with their descriptor whatever happens to the process.  To
 * read, it may also be a file that the user named.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "copy/io/outlet.h"

struct scratch {
	int fd; /* -1: none */
	uint64_t size; /* source: the bytes to read; target: the bytes that may be written */
	char name[PATH_MAX]; /* for messages */
};

/* Provides at most bytes to read at path.  path is a regular file; or a directory, in which a file
 * of that size, but of at most half the free space, is written, synced and dropped from the page
 * cache.  expand: expand ~ in path. */
int scratch_source(const char *path, bool expand, uint64_t bytes, const struct stopper *s,
		   struct scratch *out);
/* Makes an empty file in the directory dir, for bytes, but for at most half the free space. */
int scratch_target(const char *dir, bool expand, uint64_t bytes, struct scratch *out);
void scratch_close(struct scratch *s);

#endif
