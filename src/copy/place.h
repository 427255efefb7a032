/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_H
#define COPY_PLACE_H

/*
 * Where files go.  The one module that opens names which came from a peer: a walk of
 * O_NOFOLLOW opens on held directory descriptors, then only *at() calls on the directory and
 * metadata only through descriptors.
 *
 * A target is resolved once (the user's own path: symlinks in it are followed), then each
 * file is begun, written to by whoever has its descriptor, and finished or dropped.
 */

#include <stdbool.h>
#include <stdint.h>
#include "session/message.h"

struct place; /* the resolved target */
struct placement; /* one file on its way */

struct place_opts {
	const char *target;
	bool many, no_target_dir, mkpath, expand;
	bool fsync, inplace, preserve;
	bool sparse; /* don't preallocate */
	bool (*stop)(void *ctx); /* give up waiting (for the reader of a FIFO)? NULL: never */
	void *ctx;
};
/* A missing parent is an error that names it and --mkpath. Nothing is changed on disk, but
 * for --mkpath's directories. */
int place_open(const struct place_opts *o, struct place **out);
void place_close(struct place *p);

/* Begin the file that r describes: checks r->name, opens the target in place if it exists and
 * is no regular file, else a temporary beside it (locked, 0600, preallocated where size is
 * known and known to fit).  A failure is this file's only, unless it is OUT_PROTOCOL.  Several
 * threads may be in here and below at a time, each with a placement of its own. */
int place_begin(struct place *p, const struct record_file *r, struct placement **out);
int placement_fd(const struct placement *t);
/* Is it empty, so that what is not written is zero? */
bool placement_fresh(const struct placement *t);
/* Is its size set in the end, so that what is behind the last write is zero? */
bool placement_sized(const struct placement *t);
const char *placement_name(const struct placement *t); /* for messages */
/* All bytes are stored: set size, mode, times, owner as asked, fsync, rename, fsync the
 * directory. Frees t, also on failure (the temporary is removed then). */
int place_finish(struct placement *t, uint64_t size);
/* Give up: keep the temporary for a later run, which one line tells, or remove it. Frees t. */
void place_drop(struct placement *t, bool keep);

/* The last component of a path as the user wrote it ("a/b/" is "b", "/" and "." are ""). */
const char *name_last(const char *path, char *to, size_t size);
/* May a peer's file be called this? One component, not "", ".", "..", no '/', at most 255. */
bool name_is_plain(const char *name);
bool name_is_pattern(const char *name);
/* Is it what the user asked for: the last component of want, or a match of it? "-" wants "". */
bool name_answers(const char *name, const char *want);

#endif
