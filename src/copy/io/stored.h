/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_STORED_H
#define COPY_IO_STORED_H

/*
 * Is what was written to a regular file there, as far as the file system tells without reading it
 * back?  Somebody may have cut the file short meanwhile, or a write may have gone to another
 * offset.  A file that is too short or too long shows it; and where holes are told for certain, so
 * does a hole in what was written without one.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct stored {
	uint64_t reach; /* bytes were written up to here */
	uint64_t longest; /* UINT64_MAX: not known */
	bool full; /* from 0 to reach no byte was left out */
};
enum stored_how { STORED_ALL, STORED_SHORT, STORED_LONG, STORED_HOLE };
/* st: of fd, now.  Moves fd's offset. */
enum stored_how stored_look(int fd, const struct stat *st, const struct stored *s);
/* What is not STORED_ALL, as a failure: OUT_INTEGRITY. */
int stored_fail(const char *shown, enum stored_how how);
/* Is a descriptor, if it is a regular file's, as long as that? Else -1. Its offset stays. */
int stored_check_stream(int fd, uint64_t reach, const char *shown);

#endif
