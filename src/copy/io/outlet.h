/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_OUTLET_H
#define COPY_IO_OUTLET_H

/*
 * Descriptors that a stream or file is read from or written to, and calls on them that can be
 * cancelled.  A blocked read or write ends with EINTR (worker.h); then stop() decides whether to
 * give up.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "copy/io/direct.h"
#include "copy/io/writeback.h"

struct stopper {
	bool (*stop)(void *ctx);
	void *ctx;
};

struct outlet {
	int fd;
	const char *name; /* for messages */
	bool seekable; /* bytes may be written in any order */
	bool fresh; /* bytes that are not written are zero */
	bool sized; /* its size is set at the end, so bytes behind the last write become zero */
	bool sparse; /* with fresh: leave out pages of zeros */
	uint64_t base; /* the offset of the file's byte 0 */
	struct direct_file *direct; /* writes past the page cache what it can; NULL: nothing */
	/* writes back the rest early; NULL: leaves that to the kernel */
	struct writeback *writeback;
	_Atomic uint64_t *passed; /* counts what a pipe has taken, by PASS_AT_MOST; NULL: not */
	struct stopper stopper;
};

enum { PASS_AT_MOST = 64 << 10 };

/* For a regular file that is written from its beginning.  Examines nothing, so no failing call can
 * make it something else. */
void outlet_of_file(int fd, const char *name, struct outlet *out);
/* For anything else.  Determines whether fd can be written at positions, and from where on.  -1
 * with a failure, because what cannot be determined is not guessed. */
int outlet_of(int fd, const char *name, struct outlet *out);
/* Writes at pos.  If not seekable, pos must be where the last write ended. */
int outlet_write(const struct outlet *o, uint64_t pos, const void *bytes, size_t len);
int outlet_write_zeros(const struct outlet *o, uint64_t pos, uint64_t len);
/* The first position in [from, to] that is not in a hole; `to' if there is none before it.  If the
 * file system does not report holes: from.  The file must reach to `to'.  Moves the offset of
 * fd. */
uint64_t outlet_skip_hole(int fd, uint64_t from, uint64_t to);
/* fsync.  Pipes, sockets and character devices need none. */
int outlet_sync(int fd);
/* Moves the descriptor's offset behind the last byte, for processes that share it.  Extends a fresh
 * file to it. */
int outlet_seek_to_end(const struct outlet *o, uint64_t size);
/* Waits until the reader of a pipe has taken everything, however long it rests.  Fails if it ends
 * before that: what is in a pipe that nobody reads is lost. */
int outlet_drain(const struct outlet *o);

/*
 * Reads what is available, up to room bytes.  Waits for the first byte.  Then continues until room
 * is full or GATHER_MS have passed since the first byte and nothing more is available, so that the
 * bytes of a slow writer are not held back.  0 at the end; -1 with errno.  *after: what follows
 * these bytes, an errno or GATHER_END; 0: unknown.
 */
enum { GATHER_MS = 1, GATHER_END = -1 };
ssize_t stream_gather(int fd, void *buf, size_t room, const struct stopper *s, int *after);
/* Enlarges a pipe's buffer; does nothing to others. */
void stream_widen(int fd);

#endif
