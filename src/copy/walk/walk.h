/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_H
#define COPY_WALK_WALK_H

/*
 * Finding what is to be copied: a walk through what the user named, depth first, a piece of
 * one directory at a time, so that neither a directory nor a tree is ever in memory whole.
 *
 * walk_step() goes on and hands out what it met: directories, pieces of their entries, names
 * that --delete must not touch, and failures.  It is called by one thread at a time; what was
 * handed out may be used in any thread.
 *
 * Only what the user named is followed if it is a symbolic link (with --copy-links, everything).
 * Temporaries and markers of ours are passed over.
 */

#include "copy/rules/rules.h"
#include "copy/walk/find.h"
#include "copy/walk/walk_dir.h"

enum walk_type {
	WALK_DIR = 1, /* the directory itself, before all that is in it; name is "" */
	/* Named by the user and no directory: name is its path, dir the one that it will be in
	 * (with --relative), NULL: the target. Perhaps it is not even there. */
	WALK_NAMED,
	WALK_REGULAR,
	WALK_SYMLINK,
	WALK_FIFO,
	WALK_CHAR,
	WALK_BLOCK,
};

/* Entries of one directory, in order. */
struct walk_piece {
	struct walk_piece *next; /* whoever has it */
	struct walk_dir *dir; /* a reference */
	uint32_t want;
	bool missing; /* WALK_NAMED: it was not there when names were expanded */
	uint32_t count; /* entries that walk_piece_next() has not told yet */
	const char *at;
	_Atomic uint32_t left; /* entries that are not done */
	char bytes[]; /* of each: u8 type, name, NUL */
};
/* One thread at a time. false: no more. */
bool walk_piece_next(struct walk_piece *p, enum walk_type *type, const char **name);
/* So many entries and their names are not needed any more; the last ones free it. Any thread. */
void walk_piece_done(struct walk_piece *p, uint32_t entries);

/* All return 0, or -1: then walk_step() does. */
struct walk_out {
	void *ctx;
	/* A new directory: before any piece of it, and before any piece of one in it. */
	int (*dir)(void *ctx, struct walk_dir *d);
	/* p is the receiver's. */
	int (*piece)(void *ctx, struct walk_piece *p);
	/* With --delete: the source has this name in d. NULL: these were all. */
	int (*keep)(void *ctx, struct walk_dir *d, const char *name);
	/* This thread's failure is one of name in d ("": d itself; d NULL: name is what the user
	 * wrote). */
	int (*failed)(void *ctx, struct walk_dir *d, const char *name);
};

struct walk_opts {
	const struct found *found;
	const struct rules *rules;
};

struct walk;
int walk_new(const struct walk_opts *o, struct walk **out); /* o is copied, what it has borrowed */
void walk_free(struct walk *w); /* all directories have been let go of */
/* 1: there is more. 0: that was all. -1: a callback said so, or memory is out. */
int walk_step(struct walk *w, const struct walk_out *o);
/* For directories of others that are to be opened in the same way. */
struct walk_dirs *walk_dirs_of(struct walk *w);
/* Could a directory not be read? */
bool walk_incomplete(const struct walk *w);
/* Is the only name that of a file, not of a tree? */
bool walk_is_of_one(const struct walk *w);

#endif
