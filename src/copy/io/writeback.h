/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_WRITEBACK_H
#define COPY_IO_WRITEBACK_H

/*
 * Writing through the page cache, so that dirty pages don't pile up: each stretch of a file is
 * handed to the disk soon after it is full, and whoever is too far ahead of the disk waits for an
 * older one.  Left alone the kernel begins when a tenth of memory is dirty, and then holds
 * writers up for long.
 *
 * A run's first `slack' bytes are left alone all the same, since what fits there is copied at
 * memory's rate, and may have been deleted or replaced before it need be on a disk; none with
 * --fsync, which waits for the disk anyway (2 GiB, written and fsynced, are done a quarter sooner).
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct writeback {
	uint64_t slack;
	_Atomic uint64_t written;
};

void writeback_begin(struct writeback *w, bool fsync);
/* Is fd a regular file on something behind the page cache? */
bool writeback_suits(int fd);
/* len bytes at pos are written, and the file is mostly written in this order.  -1: the disk failed,
 * with errno. */
int writeback_wrote(struct writeback *w, int fd, uint64_t pos, uint64_t len);
/* Nothing more comes: the file ends at size.  -1 as above. */
int writeback_rest(struct writeback *w, int fd, uint64_t size);

#endif
