/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_H
#define COPY_PLACE_PLACE_H

/*
 * Where files go.  The one module that opens names which came from a peer: a walk of
 * O_NOFOLLOW opens on held directory descriptors, then only *at() calls on the directory and
 * metadata only through descriptors.
 *
 * A target is resolved once (the user's own path: symlinks in it are followed).  Directories are
 * made as they are met (place_dir), each file is begun, written to by whoever has its
 * descriptor, and finished or dropped; what has no bytes is made at once (place_make).  In the
 * end, and only when all is well, place_complete() deletes, and gives directories their
 * metadata.
 *
 * Several threads may call all of it at a time, each with a placement of its own, but for
 * place_open, place_complete and place_close.  Of n directories at most a few hundred are held
 * open; one that must be opened again has to be the one it was.
 *
 * With rules->dry_run nothing is ever changed: what would be is told.
 */

#include <stdbool.h>
#include <stdint.h>
#include "copy/attr/origin.h"
#include "copy/attr/owners.h"
#include "copy/attr/xattrs.h"
#include "copy/io/outlet.h"
#include "copy/names/taken.h"
#include "copy/place/change.h"
#include "copy/rules/rules.h"
#include "protocol/message.h"

struct place; /* the resolved target */
struct place_dir; /* a directory of it, freed with it */
struct placement; /* one file on its way */

struct place_opts {
	const char *target;
	const char *const *wants; /* SRCs as the user wrote them, for the marker */
	const char *peer; /* and the host they are on; "" */
	/* With remove_source what is the same or written in place is touched, since it may be the
	 * source, and what is no regular file is refused: nothing keeps what is written there.
	 * With sparse nothing is preallocated.  NULL: plain. */
	const struct rules *rules;
	bool many; /* several sources: the target must be a directory */
	bool expand; /* ~ in target */
	struct owners *owners;
	bool (*stop)(void *ctx); /* give up waiting (for the reader of a FIFO)? NULL: never */
	/* Something was deleted, or would be, to make room. NULL: not told. */
	void (*on_cleared)(void *ctx, enum event_what what, const char *path);
	/* Something is as it should be but for metadata that was asked for: path from the top.
	 * NULL, or with remove_source: that is a failure of the thing. */
	void (*on_unkept)(void *ctx, enum event_what what, const char *path,
			  const struct failure *why);
	const struct taken *taken; /* names in the target that are not to be replaced; NULL: none */
	/* This name in the target is looked at or made. NULL: not told. */
	void (*on_taken)(void *ctx, const char *name);
	void *ctx;
};
/* A missing parent is an error that names it and --mkpath. Nothing is changed on disk, but
 * for --mkpath's directories. */
int place_open(const struct place_opts *o, struct place **out);
void place_close(struct place *p);
/* Would place_open() and the first file succeed, as far as is known without opening or changing
 * anything?  For one file or stream. */
int place_check(const char *target, const struct rules *rules);

/* What a source is, before anything of it comes. */
struct place_origin {
	struct origin origin;
	bool dir;
	const char *name; /* in d (NULL: the target); "" of a directory: its contents go there */
	const char *source; /* as the user wrote it */
};
/* -1 with a failure: it is what is at the target, or a directory that the target is in. */
int place_check_origin(struct place *p, struct place_dir *d, const struct place_origin *o);

/* ---- directories ---------------------------------------------------------------------- */

/*
 * The directory that r describes, in parent (NULL: r->parent is 0): made where it
 * is missing; the target of several sources, or of contents, may be there.  Where DST did not
 * exist it becomes DST itself, with a marker in it until place_complete(); while such a marker of
 * the same source is there the same source goes there again.  What is there and is no directory is
 * replaced by one (backed up with --backup); a symlink too: it is never gone through.
 * A failure is that directory's; OUT_PROTOCOL is the session's.  1: it is left out, with all that
 * is in it: --ignore-existing, and something else is there, which stays; or --existing, and nothing
 * is.
 */
int place_make_dir(struct place *p, struct place_dir *parent, const struct record_dir *r,
		   struct place_dir **out, struct change *change);
/* Attributes for it at the end; x becomes the place's. */
void place_dir_xattrs(struct place_dir *d, struct xattrs *x);
/* Names that the source has in it (KEEP): what else is there is deleted in the end. */
int place_dir_keep(struct place_dir *d, struct reader *names, bool last);
/* Its path from the top of the transfer, as filters and events have it; cut in front if it is
 * longer. name: of something in it, or "". d NULL: the top.  Returns its length. */
size_t place_path(const struct place_dir *d, const char *name, char *to, size_t size);
/* Was it made by this run, and all that is in it? */
bool place_dir_fresh(const struct place_dir *d);
/* Which WANT it came with. */
uint32_t place_dir_want(const struct place_dir *d);

/* ---- files ---------------------------------------------------------------------------- */

/* Begin the regular file (or stream) that r describes, in d (NULL: r->dir is 0): checks r->name,
 * opens the target in place if the user named it and it is no regular file, else a temporary beside
 * it (locked, 0600, preallocated where size is known and known to fit). A failure is this file's
 * only, unless it is OUT_PROTOCOL. */
int place_begin(struct place *p, struct place_dir *d, const struct record_file *r,
		struct placement **out);
/* The same for one whose bytes are all at hand: what is not finished leaves nothing. */
int place_begin_whole(struct place *p, struct place_dir *d, const struct record_file *r,
		      struct placement **out);
/* In a dry run: would that fail, as it looks? What would be deleted to make room is told. */
int place_rehearse(struct place *p, struct place_dir *d, const struct record_file *r);
/* As place_begin(), with the temporary as an earlier run left it, if there is one with anything in
 * it: then *had is true. Else nothing is opened and *out is NULL. */
int place_resume(struct place *p, struct place_dir *d, const struct record_file *r,
		 struct placement **out, bool *had);
/* The same, with a temporary that shares on the disk what `from' has, if that can be, and without
 * a failure of the file if not: -1. */
struct clones;
int place_clone(struct place *p, struct place_dir *d, const struct record_file *r, int from,
		struct clones *clones, struct placement **out);
int placement_fd(const struct placement *t);
/* What its bytes are written through.  A file of our own, and one that is written in place, is
 * known to be regular; anything else is looked at, and -1 is a failure of that. */
int placement_outlet(const struct placement *t, const char *name, struct outlet *out);
/* Is it empty, so that what is not written is zero? */
bool placement_fresh(const struct placement *t);
/* Is its size set in the end, so that what is behind the last write is zero? */
bool placement_sized(const struct placement *t);
const char *placement_name(const struct placement *t); /* for messages */
/* Bytes of it came up to reach, and, if it is full, all of these: finishing looks whether the file
 * has them (stored.h).  Until this is called nothing is known to have come. */
void placement_set_reach(struct placement *t, uint64_t reach, bool full);
/* Attributes for it; x becomes t's. */
void placement_xattrs(struct placement *t, struct xattrs *x);
/* What finishing changes at the target. Before place_finish(). */
void placement_change(const struct placement *t, struct change *out);
/* All bytes are stored: set size, mode, times, owner, attributes as asked, fsync, back up what is
 * there, rename, fsync the directory. Frees t, also on failure (the temporary is removed then).
 * linked: other names of it will come (place_make with TYPE_HARD_LINK): remember it under r->id. */
int place_finish(struct placement *t, uint64_t size);
/* Give up: keep the temporary for a later run, which one line tells, or remove it. Frees t. */
void place_drop(struct placement *t, bool keep);

/* What is there under r's name (of a FILE with ASK)?  Nothing is changed. */
enum look {
	LOOK_MISSING, /* nothing, or no regular file */
	LOOK_OTHER, /* a regular file that differs in size or mtime */
	LOOK_QUICK, /* a regular file of that size and mtime */
};
struct looked {
	enum look look;
	bool same_size, newer; /* newer: its mtime is later than r's */
	bool absent; /* nothing of any kind is there: --existing leaves it out */
	struct change change; /* if r came now (x: its attributes; NULL: none) */
};
int place_look(struct place *p, struct place_dir *d, const struct record_file *r,
	       const struct xattrs *x, struct looked *out);
/* For --checksum: the file that is there, to be read; *fd is the caller's. -1 with no failure
 * but errno. */
int place_read(struct place *p, struct place_dir *d, const struct record_file *r, int *fd);
/* It is the same: make its metadata so as well, and remember it when it is FILE_LINKED. x stays the
 * caller's. */
int place_same(struct place *p, struct place_dir *d, const struct record_file *r,
	       const struct xattrs *x);

/* A symlink (to target), hard link, FIFO or device, made and then renamed to its name, unless it
 * is there as it should be: then *change tells of nothing. x stays the caller's. */
int place_make(struct place *p, struct place_dir *d, const struct record_file *r,
	       const char *target, const struct xattrs *x, struct change *change);

/* ---- the end -------------------------------------------------------------------------- */

struct place_end {
	bool deletions; /* may be done: the source's list is complete */
	/* Was name in the target itself asked for on its own, so that it stays, whatever sources
	 * have whose contents go there? NULL: nothing was. */
	bool (*is_asked)(void *ctx, const char *name);
	uint64_t deleted; /* so many were, with those that were in the way of something */
	bool too_many; /* --max-delete left some */
	/* Something was deleted (why NULL), or could not be, or a directory's metadata could not
	 * be set. dir_id: of the directory, 0: of a deletion. */
	void (*on_deleted)(void *ctx, enum event_what what, const char *path,
			   const struct failure *why);
	void (*on_dir)(void *ctx, uint32_t dir_id, const struct failure *why);
	void *ctx;
};
/* Delete what --delete asks for, set directories' metadata, deepest first, remove the marker and
 * what earlier runs left of files that are whole now.  -1: OUT_SIGNAL and the like only. */
int place_complete(struct place *p, struct place_end *e);

#endif
