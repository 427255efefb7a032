/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_DIRECT_H
#define COPY_IO_DIRECT_H

/*
 * Files past the page cache (O_DIRECT), by a second descriptor beside the ordinary one: whatever
 * can't be moved so (odd ends, odd positions, a file system that refuses after all) goes through
 * the ordinary one, so that nothing here ever fails but for an error of the disk.
 *
 * What is resident the kernel is asked by cachestat(2): exact, and one call for a file of any
 * size.  Where it is missing (before Linux 6.5) or not allowed (from 6.13 on only to those who may
 * write the file), bytes spread over the file are read with RWF_NOWAIT, which takes what is there
 * and waits for nothing.  mincore(2) is no alternative: it says "all" to those who may not write.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	DIRECT_ALIGN = 4096, /* of bytes in memory, positions and lengths */
	/*
	 * Files from this on are looked at: below, readahead has them as soon, and a second
	 * descriptor costs more than it saves.
	 */
	DIRECT_MIN = 8 << 20,
	/*
	 * To be read with one call, if there are blocks for it: a lane waits for the disk, so this
	 * is how much the disk has to do at a time.  Where a call takes a millisecond 2 lanes
	 * that read 256 KiB each get no more than 0.5 GB/s.
	 */
	DIRECT_AT_ONCE = 4 << 20,
	/* Percent of a file that may be in the cache and are read from the disk all the same: so
	 * much more there is to read, at the most. */
	DIRECT_RESIDENT = 12,
};

struct direct_file {
	int fd;
	atomic_bool refused; /* it can't be done after all */
};

/* How many percent of len bytes at pos are in the page cache?  100 where nobody can tell. */
unsigned direct_resident_percent(int fd, uint64_t pos, uint64_t len);

/* Is fd on a disk file system of this host, of which we know that O_DIRECT is what it says? */
bool direct_suits(int fd);
/* A second way to the regular file fd, open with flags (O_RDONLY, O_WRONLY or O_RDWR); NULL: there
 * is none, with errno. */
struct direct_file *direct_open(int fd, int flags);
void direct_close(struct direct_file *d); /* NULL: nothing */

/* Read as pread_full() does; fd is the ordinary descriptor.  There is room behind len up to the
 * next multiple of DIRECT_ALIGN, which may be written to.  d NULL: all of it by fd. */
ssize_t direct_read(struct direct_file *d, int fd, void *to, size_t len, uint64_t pos);
/* Read len bytes at pos into count buffers, of whole pages each: how many came, from the first on,
 * 0 if it can't be.  What goes to the disk at once is what keeps it busy. */
size_t direct_read_many(struct direct_file *d, const struct iovec *to, int count, uint64_t pos);
/* Write what of len bytes can be written so: how much from the first byte on that is; -1: the disk
 * failed, with errno.  d NULL: 0. */
ssize_t direct_write(struct direct_file *d, const void *from, size_t len, uint64_t pos);

/* --direct=on, and it can't be: told once, by why of errno. */
void direct_warn_missed(atomic_bool *told, const char *name);

#endif
