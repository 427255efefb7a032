/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_WRITEBACK_H
#define COPY_IO_WRITEBACK_H

/*
 * Writes through the page cache without piling up dirty pages.  Each stretch of a file is handed to
 * the disk soon after it is full, and a lane that is too far ahead of the disk waits for an older
 * stretch.  Left alone, the kernel begins when a tenth of memory is dirty, and then blocks writers
 * for long.
 *
 * The first `slack' bytes of a run are left to the kernel nevertheless.  What fits in there is
 * copied at the speed of memory, and may be deleted or replaced before it has to be on a disk.
 * With --fsync slack is 0, because the run waits for the disk anyway (writing and fsyncing 2 GiB
 * then takes a quarter less time).
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct writeback {
	uint64_t slack;
	_Atomic uint64_t written;
};

void writeback_begin(struct writeback *w, bool fsync);
/* Is fd a regular file on a file system that writes back dirty pages? */
bool writeback_suits(int fd);
/* len bytes at pos were written; most of the file is written in this order.  -1 with errno: the
 * disk failed. */
int writeback_after_write(struct writeback *w, int fd, uint64_t pos, uint64_t len);
/* No more will be written; the file ends at size.  -1 with errno: the disk failed. */
int writeback_finish(struct writeback *w, int fd, uint64_t size);

#endif
