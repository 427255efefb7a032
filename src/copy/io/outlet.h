/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_OUTLET_H
#define COPY_IO_OUTLET_H

/*
 * Descriptors that a stream or file is read from or written to, and calls on them that give up
 * when asked to: a blocked read or write ends with EINTR (worker.h), and then stop() decides.
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
	bool fresh; /* what is not written is zero */
	bool sized; /* what lies behind the last write becomes zero in the end */
	bool sparse; /* don't write pages of zeros, where fresh */
	uint64_t base; /* where byte 0 of the file is */
	struct direct_file *direct; /* past the page cache, what can be; NULL: through it */
	struct writeback *writeback; /* what goes through it; NULL: when the kernel likes */
	struct stopper stopper;
};

/* A regular file that is written from its beginning: nothing about it is looked up, so that no call
 * that fails makes anything else of it. */
void outlet_of_file(int fd, const char *name, struct outlet *out);
/* Anything else.  Look at fd: can it be written at positions, and from where on?  -1 with a
 * failure: what can't be looked at is not guessed. */
int outlet_of(int fd, const char *name, struct outlet *out);
/* Write at pos; where it can't be sought, pos must be where the last write ended. */
int outlet_store(const struct outlet *o, uint64_t pos, const void *bytes, size_t len);
int outlet_zeros(const struct outlet *o, uint64_t pos, uint64_t len);
/* The first position from `from' on that does not lie in a hole, as far as the file system reports
 * holes; `to': all before that does.  The file must reach to there.  Moves the offset. */
uint64_t outlet_skip_hole(int fd, uint64_t from, uint64_t to);
/* fsync, of what can be synced: a pipe, a socket or a character device need not. */
int outlet_sync(int fd);
/* Leave the descriptor's offset behind the last byte, for whoever shares it. */
int outlet_seek_to_end(const struct outlet *o, uint64_t size);

/*
 * Read what is there, up to room: as much as comes until room is full or GATHER_MS have passed
 * since the first byte with nothing more there, so that a slow writer's bytes are not held
 * back.  0 at the end; -1 with errno.  *after tells what came right behind these bytes: an
 * errno, or GATHER_END; 0: not known.
 */
enum { GATHER_MS = 1, GATHER_END = -1 };
ssize_t stream_gather(int fd, void *buf, size_t room, const struct stopper *s, int *after);
/* Make a pipe roomy; nothing for others. */
void stream_widen(int fd);

#endif
