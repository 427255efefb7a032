/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_IO_H
#define BASE_IO_H

/*
 * Complete reads and writes on blocking descriptors. They handle short counts and EINTR. EINTR
 * after cancel() (worker.h) ends the call with ECANCELED. They set errno but write no failure text,
 * since only the caller knows the name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Repeats a call that opens a name or asks about a file system as long as signals interrupt it.
 * Such a call may wait for a server (FUSE, NFS). Opening a FIFO waits for its other end, so a
 * caller that opens one must itself check for the end of the session. All other opens in src/ use
 * this macro (tests/lint/layers).
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
/* Whether a signal interrupted the failed call, so that it must be repeated. */
bool io_interrupted(void);

/* Return the bytes read, fewer than len only at the end of the file; -1 on error. */
ssize_t read_full(int fd, void *buf, size_t len);
ssize_t pread_full(int fd, void *buf, size_t len, off_t pos);

/* Return 0 when all is written, else -1. A write(2) that returns 0 is EIO, never a loop. */
int write_full(int fd, const void *buf, size_t len);
int pwrite_full(int fd, const void *buf, size_t len, off_t pos);

/* Makes an eventfd readable; a full one already is. Any other failure would leave a thread asleep
 * for ever, so it aborts the process with a message. Safe in a signal handler. */
void raise_event(int fd);

/* Duplicates fd to a number of at least `least', close-on-exec; -1 with errno. */
int dup_above(int fd, int least);

/* Whether a call that makes a descriptor failed with this errno because the process or the host has
 * no room for one. */
bool lacks_room_for_fd(int err);

/* Makes reads and writes of fd not wait. Returns 0, or -1 with errno. */
int set_nonblocking(int fd);

/* The bytes that can be read from a pipe or socket now; also asked of a pipe's write end. -1 with
 * errno. */
int count_readable(int fd);

/* Closes and ignores errors; fd may be negative. Keeps errno. */
void close_fd(int fd);

#endif
