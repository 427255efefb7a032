/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_MEASURE_SCRATCH_H
#define COPY_MEASURE_SCRATCH_H

/*
 * What rdbench reads and writes to measure a disk: files without a name, which go with their
 * descriptor whatever happens to the process, in a directory that the user named; or, to read, a
 * file of his.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "copy/io/outlet.h"

struct scratch {
	int fd; /* -1: none */
	uint64_t size; /* source: what there is to read.  Target: what there is room for */
	char name[PATH_MAX]; /* for messages */
};

/* Something to read at path, at most bytes of it: a regular file, or a directory, in which so many
 * bytes are written, brought to the disk and dropped from the page cache.  expand: ~ is meant. */
int scratch_source(const char *path, bool expand, uint64_t bytes, const struct stopper *s,
		   struct scratch *out);
/* An empty file in the directory dir for bytes, or for half of the room that there is. */
int scratch_target(const char *dir, bool expand, uint64_t bytes, struct scratch *out);
void scratch_close(struct scratch *s);

#endif
