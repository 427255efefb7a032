/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_H
#define COPY_WALK_WALK_H

/*
 * Finds what is to be copied.  The walk goes through what the user named, depth first, and reads
 * one piece of a directory at a time, so that neither a directory nor a tree is ever in memory as a
 * whole.
 *
 * walk_step() continues the walk and passes on what it found: directories, pieces of their entries,
 * names that --delete must not touch, and failures.  Only one thread at a time may call it; what it
 * passed on may be used in any thread.
 *
 * A symlink is followed only if the user named it; with --copy-links every symlink is.  Temporaries
 * and markers of Sluice are skipped.
 */

#include "copy/rules/rules.h"
#include "copy/walk/find.h"
#include "copy/walk/walk_dir.h"

enum walk_type {
	WALK_DIR = 1, /* the directory itself, before everything in it; name is "" */
	/* Named by the user, and not a directory.  name is its path.  dir is the directory that it
	 * will be in (with --relative), NULL: the target.  It may not even exist. */
	WALK_NAMED,
	WALK_REGULAR,
	WALK_SYMLINK,
	WALK_FIFO,
	WALK_CHAR,
	WALK_BLOCK,
};

/* Entries of one directory, in order. */
struct walk_piece {
	struct walk_piece *next; /* for the receiver's use */
	struct walk_dir *dir; /* a reference */
	uint32_t want;
	bool missing; /* WALK_NAMED: it did not exist when names were expanded */
	uint32_t count; /* entries that walk_piece_next() has not returned yet */
	const char *at;
	_Atomic uint32_t left; /* entries in use; see walk_piece_done() */
	char bytes[]; /* for each entry: u8 type, name, NUL */
};
/* One thread at a time.  False: no more entries. */
bool walk_piece_next(struct walk_piece *p, enum walk_type *type, const char **name);
/* This many entries and their names are no longer needed.  Frees p with the last one.  Any
 * thread. */
void walk_piece_done(struct walk_piece *p, uint32_t entries);

/* All return 0; after -1 walk_step() returns -1. */
struct walk_out {
	void *ctx;
	/* A new directory: before any piece of it, and before any piece of a directory in it. */
	int (*dir)(void *ctx, struct walk_dir *d);
	/* The receiver owns p. */
	int (*piece)(void *ctx, struct walk_piece *p);
	/* With --delete: the source has this name in d.  NULL: there are no more. */
	int (*keep)(void *ctx, struct walk_dir *d, const char *name);
	/* This thread's failure concerns name in d ("": d itself; d NULL: name is what the user
	 * wrote). */
	int (*failed)(void *ctx, struct walk_dir *d, const char *name);
};

struct walk_opts {
	const struct found *found;
	const struct rules *rules;
};

struct walk;
/* copies o, and borrows what it points to */
int walk_new(const struct walk_opts *o, struct walk **out);
void walk_free(struct walk *w); /* call after all references to directories were put */
/* 1: there is more.  0: the walk is complete.  -1: a callback returned -1, or memory is out. */
int walk_step(struct walk *w, const struct walk_out *o);
/* Where a caller opens further directories that are held in the same way. */
struct walk_dirs *walk_dirs_of(struct walk *w);
/* Was there a directory that could not be read? */
bool walk_incomplete(const struct walk *w);
/* Is there only one name, and is it a file and not a tree? */
bool walk_is_one_file(const struct walk *w);

#endif
