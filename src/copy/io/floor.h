/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_FLOOR_H
#define COPY_IO_FLOOR_H

/*
 * How much this process may store, if it is one of several that share disks: at most max_bytes, and
 * as long as min_free bytes stay free for ordinary users.
 *
 * Before each write a process announces its bytes to all others, then asks the file system, and
 * writes only if the floor would hold although all that is announced were written. Of two that
 * write at the same time at least one sees the bytes of the other, so together they do not fall
 * below the floor, however many they are. What is announced counts on any disk. Space is not
 * allocated ahead: that would have to be announced as a whole.
 *
 * The processes share no memory. What one announces is the length of a record lock (fcntl(2)) that
 * it holds in a file, in the range of its slot: nobody else can release it, and the kernel does so
 * when the process ends.
 *
 * Without floor_set() nothing is limited.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct floor {
	uint64_t min_free, max_bytes; /* 0: none */
	int board; /* of floor_make_board() */
	unsigned slot; /* of this process alone */
};

/* A file for the locks, which has no bytes and takes none: processes inherit it. Returns -1 with a
 * failure. */
int floor_make_board(void);
/* For all writes of this process, before it has threads. Copies f. */
void floor_set(const struct floor *f);
/* Whether any floor is set. */
bool floor_is_set(void);
/* Announces a write of len bytes to fd. Returns 0, after which floor_end() must follow; or -1, with
 * floor_fail() as the reason. */
int floor_begin(int fd, size_t len);
void floor_end(size_t len);
/* Whether size bytes may be written to fd now, if no other process writes. Returns 0 or -1 as
 * above. */
int floor_check(int fd, uint64_t size);
/* Fails for what floor_begin() or floor_check() said last in this thread: "write NAME: ...". If it
 * said nothing, errno is the reason. Returns -1. */
int floor_fail(const char *name);

#endif
