/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_IMPL_H
#define COPY_WALK_WALK_IMPL_H

/* The walk's inside: walk.c walks through directories, walk_root.c begins with what the user
 * named, walk_listed.c with --files-from; walk_names.c knows what sources before have. */

#include "base/hashes.h"
#include "copy/walk/walk.h"

enum {
	WALK_DENTS = 32 << 10, /* bytes of directory entries read at once */
	WALK_ENTRIES = 512, /* of these, roughly, in a piece */
};

/* A directory on the way from the root to where the walk is. */
struct walk_frame {
	struct walk_frame *below;
	struct walk_dir *dir; /* a reference */
	bool told; /* its WALK_DIR */
	bool over; /* nothing is left to be read */
	bool whole; /* all that is in it is taken, not only: */
	const struct listed_node *listed; /* what --files-from names in it; NULL: nothing */
	size_t listed_at;
	off_t pos; /* where the next piece begins */
	char *subs; /* directories in it that come next: 1 if it is WALK_NAME_AGAIN, and the name */
	size_t subs_at, subs_used, subs_size;
};

struct walk_names {
	bool wanted;
	struct hashes dirs, others; /* paths */
};

struct walk {
	struct walk_opts o;
	struct walk_names names;
	/* With --relative, and the same directory cut off from all paths, one name at the target is
	 * one file. */
	bool names_one_file;
	struct walk_dirs dirs;
	struct walk_frame *top;
	unsigned next_root;
	bool has_contents; /* of a root before, which go to the target itself */
	dev_t dev; /* of the root, for --one-file-system */
	bool incomplete;
	struct walk_dir **implied; /* that led to the root before, outermost first; references */
	unsigned implied_count;
	size_t implied_room;

	const struct walk_out *out; /* while a step is made: */
	bool emitted;
	char *bytes; /* the piece that is being made */
	size_t used, size;
	uint32_t count;
	char path[EVENT_PATH_MAX];
	_Alignas(8) char dents[WALK_DENTS];
};

/* This thread's failure, of name in d; 0, or -1 if the walk is over with it. */
int walk_fail(struct walk *w, struct walk_dir *d, const char *name);
bool walk_excludes(struct walk *w, struct walk_dir *d, const char *name, bool dir);
/* One more entry for the next piece. */
int walk_add(struct walk *w, enum walk_type type, const char *name);
/* The same, if what has this mode is to be copied; else a word. */
int walk_add_mode(struct walk *w, struct walk_dir *d, mode_t mode, const char *name);
/* Hand them out: entries of dir, of a root p (NULL: dir's). */
int walk_emit(struct walk *w, struct walk_dir *dir, const struct found_path *p);
/* Go into a directory that has just been opened, or could not be (ret: what walk_dir_open() said);
 * d becomes the walk's. */
int walk_enter(struct walk *w, struct walk_dir *d, int ret, bool whole,
	       const struct listed_node *listed);

/* Is something of a source before to be called name in d? */
enum walk_name {
	WALK_NAME_NEW, /* no */
	WALK_NAME_AGAIN, /* a directory, as this: they become one */
	WALK_NAME_TAKEN, /* a file, as this */
	WALK_NAME_CLASHES, /* a directory, and this is none, or the other way round */
	WALK_NAME_FAILED, /* memory is out */
};
enum walk_name walk_claim_name(struct walk *w, struct walk_dir *d, const char *name, bool dir);

/* Does what is in several sources go into one directory? */
bool walk_merges(const struct walk_opts *o);
int walk_next_root(struct walk *w);
/* Entries of f that --files-from names; those that are not there have failed. */
int walk_read_listed(struct walk *w, struct walk_frame *f);
/* The same for a directory that is read as a whole: what is named and not there. */
int walk_check_listed(struct walk *w, struct walk_frame *f);

#endif
