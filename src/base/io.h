/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_IO_H
#define BASE_IO_H

/*
 * Whole reads and writes on blocking descriptors.  Short counts and EINTR are dealt with
 * here, once and for all; EINTR after cancel() (worker.h) ends the call with ECANCELED.
 * errno is set; no failure text is written, since only the caller knows the name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * A call that opens a name or asks about a file system, and may wait for a server meanwhile
 * (FUSE, NFS), made again for as long as a signal interrupts it.  A FIFO waits for its other end:
 * whoever opens one looks after the end of the session himself.  All other opens of src/ stand in
 * this (tests/lint/layers).
 */
#define RETRIED(call)                                                                              \
	__extension__({                                                                            \
		int fd_;                                                                           \
                                                                                                   \
		do                                                                                 \
			fd_ = (call);                                                              \
		while (fd_ < 0 && io_interrupted());                                               \
		fd_;                                                                               \
	})
/* Did a signal interrupt the call that failed, so that it is to be made again? */
bool io_interrupted(void);

/* Bytes read: fewer than len only at the end of the file; -1 on error. */
ssize_t read_full(int fd, void *buf, size_t len);
ssize_t pread_full(int fd, void *buf, size_t len, off_t pos);

/* 0 when all is written, else -1.  A write of nothing at all (0) is EIO, never a loop. */
int write_full(int fd, const void *buf, size_t len);
int pwrite_full(int fd, const void *buf, size_t len, off_t pos);

/* Make an eventfd readable; a full one already is.  Any other failure would leave a thread asleep
 * for ever: it aborts the process, with a sentence.  Safe in a signal handler. */
void raise_event(int fd);

/* A copy of fd that is at least that number, and closed by exec(3); -1 with errno. */
int dup_above(int fd, int least);

/* Close and ignore; negative descriptors are fine.  errno is kept. */
void close_fd(int fd);

#endif
