/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_H
#define COPY_PLACE_PLACE_H

/*
 * The target of a copy.  This is the only module that opens names that came from a peer: it opens
 * each component with O_NOFOLLOW on a held directory descriptor, then uses only *at() calls on that
 * directory, and sets metadata only through descriptors.
 *
 * The target is resolved once.  That path is the user's own, so symlinks in it are followed.
 * Directories are made as they arrive (place_make_dir()).  A file is begun, written through its
 * descriptor, and finished or dropped.  What has no bytes is made at once (place_make_other()).  At
 * the end, and only if nothing failed before, place_finish_run() deletes, and sets the metadata of
 * directories.
 *
 * Threads: any thread may call anything, each with its own placement, except place_open(),
 * place_finish_run() and place_close().  At most a few hundred directories are held open, however
 * many there are; one that is opened again must be the inode that it was.
 *
 * With rules->dry_run nothing is changed; the functions report what would change.
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

enum {
	SHOWN_ROOM = 1024, /* bytes of a name in a message */
};

struct place; /* the resolved target */
struct place_dir; /* a directory of the target, freed with the place */
struct placement; /* a file in progress */

struct place_opts {
	const char *target;
	const char *const *wants; /* SRCs as the user wrote them, for the marker */
	const char *peer; /* the host of the SRCs, for the marker; "" */
	/* NULL: plain.  With remove_source a target file that is the same, or is written in place,
	 * gets a new ctime, because it may be the source; and a target that is not a regular file
	 * is refused, because it does not keep what is written to it.  With sparse nothing is
	 * preallocated. */
	const struct rules *rules;
	bool many; /* several sources: the target must be a directory */
	bool expand; /* expand ~ in target */
	struct owners *owners;
	bool (*stop)(void *ctx); /* stop waiting, e.g. for the reader of a FIFO?  NULL: never */
	/* Reports what was deleted, or would be, to make room.  NULL: not reported. */
	void (*on_cleared)(void *ctx, enum event_what what, const char *path);
	/* Reports that something was stored without some of the metadata that the user asked for.
	 * path: from the top.  If NULL, or with remove_source, the thing itself fails instead. */
	void (*on_unkept)(void *ctx, enum event_what what, const char *path,
			  const struct failure *why);
	const struct taken *taken; /* names in the target that must not be replaced; NULL: none */
	/* Called before this name in the target is examined or made.  NULL: not called. */
	void (*on_taken)(void *ctx, const char *name);
	void *ctx;
};
/* Fails if a parent of the target is missing; the message names it and --mkpath.  Changes nothing
 * on disk, except for the directories that --mkpath makes. */
int place_open(const struct place_opts *o, struct place **out);
void place_close(struct place *p);
/* Checks, without opening or changing anything, whether place_open() and the first file would
 * succeed, as far as that can be known.  For one file or stream. */
int place_check(const char *target, const struct rules *rules);

/* The identity of a source, which arrives before anything else of it. */
struct place_origin {
	struct origin origin;
	bool dir;
	const char *name; /* in d (NULL: the target); "" for a directory: its contents go there */
	const char *source; /* as the user wrote it */
};
/* -1 with a failure: the source is what exists at the target, or a directory that contains the
 * target.  With an unknown origin, only notes that the source has the name, for backups. */
int place_check_origin(struct place *p, struct place_dir *d, const struct place_origin *o);

/* ---- directories ---------------------------------------------------------------------- */

/*
 * The directory that r describes, in parent (NULL: r->parent is 0).  Makes it if it is missing.
 * The target of several sources, or of contents, may exist already.  If DST did not exist, the
 * directory becomes DST itself, with a marker in it until place_finish_run(); while the marker of a
 * source is there, the same source goes to DST again.  If something else exists under the name, the
 * directory replaces it (with a backup with --backup), even if that is a symlink: a symlink is
 * never followed here.
 *
 * -1: the failure is this directory's, except that OUT_PROTOCOL is the session's.  1: the directory
 * and everything in it is left out, because with --ignore-existing something else exists and stays,
 * or because with --existing nothing exists.
 */
int place_make_dir(struct place *p, struct place_dir *parent, const struct record_dir *r,
		   struct place_dir **out, struct change *change);
/* Extended attributes that d gets at the end.  Takes x. */
void place_dir_xattrs(struct place_dir *d, struct xattrs *x);
/* Adds to c how d differs from x (NULL: none) in ACLs and other attributes, if it exists. */
void place_dir_compare(struct place_dir *d, const struct xattrs *x, struct change *c);
/* The source could not read those of d: all metadata of d stays as it is. */
void place_dir_unread(struct place_dir *d);
/* Names that the source has in d (KEEP).  Everything else in d is deleted at the end. */
int place_dir_keep(struct place_dir *d, struct reader *names, bool last);
/* The path of name in d from the top of the transfer, as filters and events use it; cut at its
 * front to fit.  name: "" for d itself.  d NULL: the top.  Returns the length. */
size_t place_path(const struct place_dir *d, const char *name, char *to, size_t size);
/* The path of name in d for messages, written to `to', which it returns: place_path(), but in the
 * target itself with DST before it.  Preserves errno. */
const char *place_shown(struct place *p, struct place_dir *d, const char *name,
			char to[static SHOWN_ROOM]);
/* Did this run make d, and therefore everything in it? */
bool place_dir_fresh(const struct place_dir *d);

/* ---- files ---------------------------------------------------------------------------- */

/* Begins the regular file (or stream) that r describes, in d (NULL: r->dir is 0), and checks
 * r->name.  If what has the name in the target itself is a device, a FIFO or the like, opens that.
 * With --inplace opens the target file.  Else opens a temporary in the same directory
 * (place_temporary.h).  Reserves disk space where the size is known.  A failure is this file's,
 * except that OUT_PROTOCOL is the session's. */
int place_begin(struct place *p, struct place_dir *d, const struct record_file *r,
		struct placement **out);
/* As place_begin(), for a file whose bytes are all in memory.  A new one is nameless where the file
 * system has nameless files, so that a killed run leaves nothing behind. */
int place_begin_whole(struct place *p, struct place_dir *d, const struct record_file *r,
		      struct placement **out);
/* In a dry run: would place_begin() fail, as far as can be seen?  Reports what would be deleted to
 * make room. */
int place_rehearse(struct place *p, struct place_dir *d, const struct record_file *r);
/* As place_begin(), with the temporary that an earlier run left.  *had: there is one, and it is not
 * empty.  Otherwise opens nothing and sets *out to NULL. */
int place_resume(struct place *p, struct place_dir *d, const struct record_file *r,
		 struct placement **out, bool *had);
/* As place_begin(), with a temporary that shares the disk blocks of `from' (a reflink).  -1 if that
 * is impossible; this is no failure of the file. */
struct clones;
int place_clone(struct place *p, struct place_dir *d, const struct record_file *r, int from,
		struct clones *clones, struct placement **out);
int placement_fd(const struct placement *t);
/* How the bytes are written.  A temporary, and a file that is written in place, is known to be
 * regular.  Anything else is examined first; -1: that failed. */
int placement_outlet(const struct placement *t, const char *name, struct outlet *out);
/* Was it empty when begun, so that bytes that are not written are zero? */
bool placement_fresh(const struct placement *t);
const char *placement_name(const struct placement *t); /* for messages */
/* Bytes up to reach arrived; with full, all of them.  place_finish_file() checks that the file has
 * them (stored.h).  Before this call nothing counts as arrived. */
void placement_set_reach(struct placement *t, uint64_t reach, bool full);
/* Extended attributes of the file.  Takes x. */
void placement_xattrs(struct placement *t, struct xattrs *x);
/* What finishing will change at the target.  Call before place_finish_file(). */
void placement_change(const struct placement *t, struct change *out);
/* All bytes are stored: sets size, mode, times, owner and attributes as asked, fsyncs, backs up
 * what exists, renames, fsyncs the directory.  With FILE_LINKED in r->flags remembers the file
 * under r->id, for the further names that place_make_other() links to it.  Frees t, also on
 * failure; then it removes the temporary, or a file that was created in place, unless the file
 * already has its name and its bytes. */
int place_finish_file(struct placement *t, uint64_t size);
/* Gives up.  keep: keeps the temporary for a later run where that can take it over, and logs the
 * first one; else removes it, as it does a file that was created in place.  Frees t. */
void place_drop(struct placement *t, bool keep);

/* What exists under the name of r (a FILE with ASK).  Changes nothing. */
enum look {
	LOOK_MISSING, /* nothing, or not a regular file */
	LOOK_OTHER, /* a regular file with another size or mtime */
	LOOK_QUICK, /* a regular file with the same size and mtime */
};
struct looked {
	enum look look;
	bool same_size, newer; /* newer: its mtime is later than r's */
	bool absent; /* nothing of any type exists, so --existing leaves the file out */
	struct change change; /* what storing r would change (x: its attributes; NULL: none) */
};
int place_look(struct place *p, struct place_dir *d, const struct record_file *r,
	       const struct xattrs *x, struct looked *out);
/* For --checksum: opens the existing file for reading; the caller owns *fd.  -1 with errno; not
 * always with a failure. */
int place_open_existing(struct place *p, struct place_dir *d, const struct record_file *r, int *fd);
/* The file is the same: makes its metadata the same too, and remembers it if it is FILE_LINKED.
 * Does not take x. */
int place_update_metadata(struct place *p, struct place_dir *d, const struct record_file *r,
			  const struct xattrs *x);

/* Makes a symlink (to target), hard link, FIFO or device under a temporary name, then renames it.
 * If an equal one exists already, *change is empty.  Does not take x. */
int place_make_other(struct place *p, struct place_dir *d, const struct record_file *r,
		     const char *target, const struct xattrs *x, struct change *change);

/* ---- the end of a run ----------------------------------------------------------------- */

struct place_finish {
	bool deletions; /* deletions are allowed: the source's list is complete */
	/* Did the user ask for this name in the target itself, so that it stays even if the sources
	 * whose contents go there do not have it?  NULL: for none. */
	bool (*is_asked)(void *ctx, const char *name);
	uint64_t deleted; /* out: how many were deleted, including those that were in the way */
	bool too_many; /* out: --max-delete left some */
	/* on_deleted reports what was deleted (why NULL), or could not be.  on_dir reports that the
	 * metadata of the directory dir_id could not be set. */
	void (*on_deleted)(void *ctx, enum event_what what, const char *path,
			   const struct failure *why);
	void (*on_dir)(void *ctx, uint32_t dir_id, const struct failure *why);
	void *ctx;
};
/* Deletes what --delete asks for, sets the metadata of directories, deepest first, and removes the
 * marker and what earlier runs left of files that are whole now.  -1: the run was interrupted
 * (OUT_SIGNAL) or lacks memory; single failures go to on_deleted() and on_dir(). */
int place_finish_run(struct place *p, struct place_finish *f);
/* --chmod applies to the access ACL in x (NULL: none), too. */
void place_change_acl(const struct place *p, const struct record_attr *a, bool dir,
		      struct xattrs *x);
/* A hash that identifies the target directory, on whatever path it is reached.  Another one has the
 * same hash only by chance.  0: the target is no directory. */
uint64_t place_identity(const struct place *p);

#endif
