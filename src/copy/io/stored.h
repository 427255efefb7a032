/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_STORED_H
#define COPY_IO_STORED_H

/*
 * Checks that a regular file has what was written to it, as far as the file system shows that
 * without reading.  Another process may have truncated the file, or a write may have gone to
 * another offset.  A file that is too short or too long shows that.  So does a hole where none was
 * written, on file systems that report holes reliably.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct stored {
	uint64_t reach; /* bytes were written up to here */
	uint64_t size_max; /* UINT64_MAX: unknown */
	bool full; /* every byte from 0 to reach was written */
};
enum stored_result { STORED_ALL, STORED_SHORT, STORED_LONG, STORED_HOLE };
/* st: of fd, from now.  Moves fd's offset. */
enum stored_result stored_check(int fd, const struct stat *st, const struct stored *s);
/* Fails with OUT_INTEGRITY because of result, which is not STORED_ALL. */
int stored_fail(const char *shown, enum stored_result result);
/* -1 if fd is a regular file shorter than reach.  Its offset stays. */
int stored_check_stream(int fd, uint64_t reach, const char *shown);

#endif
