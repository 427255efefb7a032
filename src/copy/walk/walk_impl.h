/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_IMPL_H
#define COPY_WALK_WALK_IMPL_H

/* Private header of the walk: walk.c walks through directories, walk_root.c begins with what the
 * user named, walk_files_from.c follows --files-from, and walk_names.c knows the names of earlier
 * sources. */

#include "base/hash_set.h"
#include "copy/walk/walk.h"

enum {
	WALK_DENTS = 32 << 10, /* bytes of directory entries read at once */
	WALK_ENTRIES = 512, /* entries in a piece, roughly */
};

enum walk_sub {
	WALK_SUB_NEW,
	WALK_SUB_AGAIN, /* WALK_NAME_AGAIN */
	WALK_SUB_LEADS, /* excluded, but leads to listed names */
};

/* A directory on the path from the root to where the walk is. */
struct walk_frame {
	struct walk_frame *below;
	struct walk_dir *dir; /* a reference */
	bool announced; /* its WALK_DIR was passed on */
	bool over; /* everything was read */
	bool whole; /* takes everything in it, not only what is listed */
	const struct files_from_node *listed; /* what --files-from lists in it; NULL: nothing */
	size_t listed_at;
	off_t pos; /* where the next piece begins */
	/* directories in it that come next: for each an enum walk_sub, then its name */
	char *subs;
	size_t subs_at, subs_used, subs_size;
};

struct walk_names {
	bool wanted;
	struct hash_set dirs, others; /* paths */
};

struct walk {
	struct walk_opts o;
	struct walk_names names;
	/* With --relative, and if all paths have the same part cut off, a name at the target is
	 * always the same file. */
	bool names_one_file;
	struct walk_dirs dirs;
	struct walk_frame *top;
	unsigned next_root;
	bool has_contents; /* an earlier root's contents go to the target itself */
	dev_t dev; /* of the root, for --one-file-system */
	bool incomplete;
	/* directories that led to the previous root, outermost first; references */
	struct walk_dir **implied;
	unsigned implied_count;
	size_t implied_room;

	const struct walk_out *out; /* set during walk_step() */
	bool emitted;
	char *bytes; /* the piece that is being filled */
	size_t used, size;
	uint32_t count;
	char path[EVENT_PATH_MAX];
	_Alignas(8) char dents[WALK_DENTS];
};

/* Reports this thread's failure, of name in d.  -1: the walk must end. */
int walk_fail(struct walk *w, struct walk_dir *d, const char *name);
bool walk_excludes(struct walk *w, struct walk_dir *d, const char *name, bool dir);
/* Adds an entry to the next piece. */
int walk_add(struct walk *w, enum walk_type type, const char *name);
/* As walk_add(), if something of this mode is copied; else warns. */
int walk_add_mode(struct walk *w, struct walk_dir *d, mode_t mode, const char *name);
/* Skips a file that this command writes. */
int walk_skip_own_file(struct walk *w, struct walk_dir *d, const char *name);
/* Passes on the piece: entries of dir, or of the root p (NULL: of dir). */
int walk_emit(struct walk *w, struct walk_dir *dir, const struct found_path *p);
/* Enters a directory; ret is what walk_dir_open() returned for it.  Takes d. */
int walk_enter(struct walk *w, struct walk_dir *d, int ret, bool whole,
	       const struct files_from_node *listed);

/* Does an earlier source have something that becomes name in d? */
enum walk_name {
	WALK_NAME_NEW, /* no */
	WALK_NAME_AGAIN, /* a directory, as this is; they are merged */
	WALK_NAME_TAKEN, /* a file, as this is */
	WALK_NAME_CLASHES, /* a directory, and this is not one, or vice versa */
	WALK_NAME_FAILED, /* out of memory */
};
enum walk_name walk_claim_name(struct walk *w, struct walk_dir *d, const char *name, bool dir);

/* Do the contents of several sources go into one directory? */
bool walk_merges(const struct walk_opts *o);
int walk_next_root(struct walk *w);
/* Reads those entries of f that --files-from lists.  Listed names that do not exist fail. */
int walk_read_listed(struct walk *w, struct walk_frame *f);
/* Does the excluded directory name in f, which is fd, lead to names that are listed and not
 * excluded? */
bool walk_leads_to_listed(struct walk *w, struct walk_frame *f, int fd, const char *name);
/* Enters that directory. */
int walk_enter_leading(struct walk *w, struct walk_frame *f, const char *name);
/* For a directory that is read as a whole: fails listed names that do not exist. */
int walk_check_listed(struct walk *w, struct walk_frame *f);

#endif
