/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_DIRECT_H
#define COPY_IO_DIRECT_H

/*
 * Access to files past the page cache (O_DIRECT), by a second descriptor besides the ordinary one.
 * What cannot be moved that way goes through the ordinary one: odd ends, odd positions, a file
 * system that refuses after all.  So nothing here fails except because of an error of the disk.
 *
 * Which bytes are in the page cache is asked with cachestat(2): exact, and one call for a file of
 * any size.  It is missing before Linux 6.5, and since 6.13 allowed only to those who may write the
 * file.  Instead, bytes spread over the file are then read with RWF_NOWAIT, which returns what is
 * cached and never waits.  mincore(2) is no alternative: to those who may not write the file it
 * reports "all".
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	DIRECT_ALIGN = 4096, /* alignment of memory, positions and lengths */
	/*
	 * Smaller files are not considered: readahead is as fast there, and a second descriptor
	 * costs more than it saves.
	 */
	DIRECT_MIN = 8 << 20,
	/*
	 * Bytes to read with one call, if there are blocks for them.  A lane waits for the disk, so
	 * this is how much work the disk has at a time.  If a call takes a millisecond, 2 lanes
	 * that read 256 KiB each reach no more than 0.5 GB/s.
	 */
	DIRECT_AT_ONCE = 4 << 20,
	/* Percent of a file that may be cached and are nevertheless read from the disk.  So this is
	 * the most that is read in addition. */
	DIRECT_RESIDENT = 12,
};

struct direct_file {
	int fd;
	atomic_bool refused; /* O_DIRECT turned out to be impossible */
};

/* How many percent of len bytes at pos are in the page cache?  100 if that cannot be determined. */
unsigned direct_resident_percent(int fd, uint64_t pos, uint64_t len);

/* Is fd on a local disk file system of which we know that O_DIRECT does what it says? */
bool direct_suits(int fd);
/* Opens the regular file fd a second time, with flags O_RDONLY, O_WRONLY or O_RDWR.  NULL with
 * errno: impossible. */
struct direct_file *direct_open(int fd, int flags);
void direct_close(struct direct_file *d); /* accepts NULL */

/* Reads as pread_full() does; fd is the ordinary descriptor.  `to' has room for len rounded up to a
 * multiple of DIRECT_ALIGN, and bytes behind len may be overwritten.  d NULL: reads through fd
 * only. */
ssize_t direct_read(struct direct_file *d, int fd, void *to, size_t len, uint64_t pos);
/* Reads at pos into count buffers, each of whole pages.  Returns how many bytes arrived, from the
 * first buffer on; 0: impossible.  One large request keeps the disk busy. */
size_t direct_read_many(struct direct_file *d, const struct iovec *to, int count, uint64_t pos);
/* Writes as much of len bytes as can be written past the page cache.  Returns how much from the
 * first byte on that was; -1 with errno: the disk failed.  d NULL: 0. */
ssize_t direct_write(struct direct_file *d, const void *from, size_t len, uint64_t pos);

/* --direct=on is impossible for name: warns once, with errno. */
void direct_warn_missed(atomic_bool *warned, const char *name);

#endif
