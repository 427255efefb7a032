/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SINK_SINK_H
#define COPY_SINK_SINK_H

/*
 * The sink's inside.  Each lane's thread takes what comes on it, block by block:
 *
 *	sink.c          the threads, records, and the run
 *	sink_dir.c      directories, what is kept of them, and owners
 *	sink_accept.c   is it what was asked for?
 *	sink_ask.c      questions: what to do with a file; sink_cells.c: digests of what is there
 *	sink_small.c    files that are whole in one block: most of all files
 *	sink_file.c     all other files, from several blocks, on several lanes; sink_piece.c: bytes
 *	sink_store.c    finishing either kind; sink_verify.c: reading back what was stored
 *	sink_result.c   what the source and the user hear of it
 *	sink_end.c      END, deletions, DONE
 *
 * A directory is met, a file begun, stored and finished by lanes without the copy's lock; it
 * is held for tables and counts only.
 */

#include "base/table.h"
#include "base/worker.h"
#include "copy/attr/owners.h"
#include "copy/attr/xattrs.h"
#include "copy/io/clone.h"
#include "copy/io/digest.h"
#include "copy/io/outlet.h"
#include "copy/place/change.h"
#include "copy/place/place.h"
#include "copy/run.h"
#include "copy/sink/sink_run.h"
#include "copy/times.h"

enum {
	SINK_OPEN_MAX = 256, /* files that were announced and are not finished */
	SINK_CLONED_MAX = 512, /* with ANSWER_CLONED, the same */
	SINK_RESUMED_MAX = 64, /* files with ANSWER_RESUME that have not come: a descriptor each */
	SINK_COMPARED_MAX = 4096, /* files with ANSWER_COMPARE, whose SAME may come */
	/* All directories of a tree are kept, so these are what a peer can make this end hold: room
	 * for a million with some of their attributes. */
	SINK_DIRS_BYTES_MAX = 384 << 20,
	SINK_DIR_XATTRS_MAX = 128 << 20,
	SINK_DIR_COST = 320, /* measured, of one directory beside its name */
	SINK_XATTR_COST = 128, /* of one attribute beside its name and value */
	SINK_BUCKETS = 1024,
	SINK_ASKED_XATTRS_MAX = 64 << 20, /* bytes of attributes, of all of these */
	SINK_CELLS_BYTES_MAX = 256 << 20, /* of digests that were told, of all resumed ones */
	SINK_UNKEPT_TOLD = 10, /* messages about metadata that could not be kept */
	SINK_RESUME_MIN = 4 << 20, /* smaller files are not resumed, but sent */
};

/* ---- directories ---------------------------------------------------------------------- */

enum sink_state {
	SINK_OPENING,
	SINK_OPEN,
	SINK_FAILED, /* a file: its bytes are taken and dropped.  A directory: all in it fails */
	SINK_ASKED, /* a file that is asked about, and was not answered yet */
	SINK_RESUMED, /* it was: its FILE is to come, perhaps */
	SINK_COMPARED, /* the same, or SAME */
};

struct sink_dir {
	uint32_t id, want;
	struct sink_dir *parent; /* NULL: the target */
	struct place_dir *place; /* NULL: it failed, or: */
	bool left; /* left out with all that is in it: --ignore-existing, and something else is
		    * there; or --existing, and nothing is */
	const struct listed_node *listed; /* what of it is listed; NULL: nothing */
	char *name; /* of one without a place */
	uint64_t hash; /* of its record */
	bool all; /* whatever is in it was asked for */

	/* The copy's lock: */
	enum sink_state state;
	uint64_t announced; /* lanes that DIR came on, a bit for each */
	struct xattrs *xattrs;
	uint8_t xattr_lane, keep_lane; /* that these come on, from 1; 0: none yet */
	bool kept; /* the last KEEP came */
	uint64_t lost; /* of a failed one in a good one: what was in it */
};

struct sink_dirs { /* the copy's lock */
	struct table by_id;
	size_t bytes; /* about, of all that is kept of them here and in the place */
};

/* ---- files ---------------------------------------------------------------------------- */

/* Digests of cells that the source was told. */
struct cells;

struct sink_file {
	struct sink_file *next;
	struct record_file r;
	struct sink_dir *dir; /* NULL: the target */
	struct placement *placement; /* NULL: the stream's descriptor, or none */
	struct outlet out; /* fd -1: bytes go to link, or nowhere */
	char *link; /* a symlink's target */
	bool resumed; /* asked about, for ANSWER_RESUME or CLONED, else ANSWER_COMPARE */
	bool cloned; /* all of it is there */
	bool left; /* of no known size: --existing leaves it out */
	struct cells *cells; /* ANSWER_RESUME: what HAVE may tell */
	bool ordered; /* stored in order of pos */
	struct digest *digest; /* of an ordered one; whose turn it is uses it */
	struct digest *partial[LANE_COUNT_MAX]; /* of the cell that is coming in on that lane */

	/* The copy's lock: */
	enum sink_state state;
	uint64_t announced; /* lanes that FILE came on, a bit for each */
	uint64_t turn; /* ordered: up to here all is stored, */
	bool taken; /* and somebody stores what comes next */
	uint64_t taken_ns; /* since then */
	uint64_t data, holes; /* that came; holes: what HAVE told too */
	uint64_t had; /* of these */
	uint64_t reach; /* of what is no hole, from 0 */
	uint64_t sum[2];
	uint64_t solid[2]; /* --verify: the same without cells that are all zero */
	struct xattrs *xattrs;
	size_t xattr_bytes; /* of an asked one */
	unsigned busy; /* lanes that store a piece */
	bool ended;
	struct record_file_end end;
	bool told; /* it failed, and the result is on its way */
};

/* ---- lanes ---------------------------------------------------------------------------- */

/* What one lane counted and has not added up yet. */
struct sink_sums {
	struct msg_total ended; /* what FILE_END, DIR and SAME records said, and answers */
	struct msg_total stored; /* what is done */
	struct msg_counts counts;
	uint64_t bytes, files; /* for the tally */
	bool any;
};

/* What waits to be told, and room for it. */
struct sink_mail {
	struct msg_stored stored;
	struct msg_answers answers;
	struct msg_cells cells;
	uint8_t body[FRAME_BODY_MAX];
	char path[EVENT_PATH_MAX];
};

/* A FILE with ASK, while its attributes come. */
struct sink_question {
	bool open;
	struct record_file r;
	struct sink_dir *dir;
	struct xattrs *xattrs;
	size_t xattr_bytes;
};

struct sink_lane {
	struct sink *sink;
	struct lane *lane;
	unsigned index;
	struct record record, ahead; /* being looked at, and behind it */
	struct digest *digest; /* of whole cells, and of small files */
	struct sink_dir *dir; /* met last on this lane */
	struct sink_question question;
	struct sink_sums sums;
	struct sink_mail *mail;
	_Atomic pid_t tid;
	uint8_t *scratch; /* a cell, aligned for O_DIRECT: to read back */

	/* The copy's lock: */
	pthread_cond_t turn; /* signalled when what it waits for may have come */
	const void *waits; /* a file or directory */
	const struct sink_file *ordered; /* whose turn it waits for; NULL: none */
	uint64_t ordered_pos; /* where its piece is */
	struct lane_use use;
};

struct sink {
	struct copy *copy;
	struct session *session;
	const struct sink_opts *o;
	const struct rules *rules;
	struct rules plain;
	struct place *place; /* NULL: the stream's descriptor */
	struct owners *owners;
	atomic_int kind; /* of what is written: enum stage_kind */
	struct writeback writeback;
	struct clones clones;
	atomic_uint unkept; /* things without some metadata that was asked for */
	struct failure first_unkept; /* of them; read when the lanes are done */
	atomic_bool direct_missed; /* that a file can't be written so was told */

	/* The copy's lock: */
	bool stream_taken;
	bool one_failed; /* the file that the user named, and nothing else */
	struct sink_file *files[SINK_BUCKETS];
	unsigned count; /* of these, announced and not finished */
	unsigned resumed, compared; /* and asked about */
	size_t asked_xattr_bytes, dir_xattr_bytes;
	atomic_size_t cells_bytes; /* no lock */
	struct sink_dirs dirs;
	unsigned taking; /* lanes that are in a block */
	struct sink_sums sums;

	struct sink_lane lanes[LANE_COUNT_MAX];
	struct worker workers[LANE_COUNT_MAX];
};

static inline uint64_t sink_lane_bit(const struct sink_lane *l)
{
	return UINT64_C(1) << l->index;
}

/* sink.c.  With the lock held: wait for something about what to change, and at most ms (0: no
 * limit); it did. */
void sink_wait(struct sink_lane *l, const void *what, uint64_t ms);
void sink_wake(struct sink *s, const void *what);
/* What the lanes did; ns_finish: what came after END. */
void sink_times(struct sink *s, uint64_t ns_finish, struct msg_times *m);

/* sink_dir.c.  What came on this lane; -1: the session fails with it, here and below. */
int sink_take_dir(struct sink_lane *l, const struct record_dir *r);
int sink_take_keep(struct sink_lane *l, const struct record_keep *r);
int sink_take_origin(struct sink_lane *l, const struct record_origin *r);
int sink_take_owner(struct sink_lane *l, const struct record_owner *r);
/* 1: there is no directory of that id. */
int sink_take_dir_xattr(struct sink_lane *l, const struct record_xattr *r);
/* NULL: there is none.  Lock held. */
struct sink_dir *sink_dir_find(struct sink *s, uint32_t id);
/* The directory that a file of this lane is in: *out is NULL for 0. */
int sink_require_dir(struct sink_lane *l, uint32_t id, struct sink_dir **out);
static inline bool sink_dir_left(const struct sink_dir *d)
{
	return d && d->left;
}
/* Has it failed? Then -1 with a failure, which is that of what is called name in it. */
int sink_dir_check(const struct sink_dir *d, const char *name);
/* Something failed because d (NULL: the target) did: then it is counted there, and true; lock held.
 */
bool sink_dir_count_lost(struct sink *s, const struct sink_dir *d);
/* In the end: tell how much that was. */
void sink_dirs_report_lost(struct sink *s);
/* Path of name in d (NULL: the target), from the top of the transfer. */
size_t sink_path(const struct sink_dir *d, const char *name, char *to, size_t size);
/* The place's own, NULL for NULL. */
struct place_dir *sink_dir_place(const struct sink_dir *d);
/* In the end, with no lane at work. */
int sink_dirs_give_xattrs(struct sink *s);
void sink_dirs_free(struct sink *s);

/* sink_accept.c: OUT_PROTOCOL, or 0; a directory: all and listed are set. */
int sink_accept_dir(const struct sink *s, const struct record_dir *r, struct sink_dir *d);
int sink_accept_file(const struct sink *s, const struct record_file *r, const struct sink_dir *d);
/* Is name what a source of several becomes in the target? */
bool sink_asks_for(const struct sink *s, const char *name);

/* sink_ask.c */
int sink_take_question(struct sink_lane *l, const struct record_file *r);
int sink_add_xattr(struct sink_lane *l, const struct record_xattr *r);
/* Nothing more of it comes: answer it. */
int sink_answer(struct sink_lane *l);
int sink_take_same(struct sink_lane *l, const struct record_same *r);
/* Forget what waits for its FILE. With no lane at work. */
void sink_forget_asked(struct sink *s);
/* Take an asked one out of the table: it is the caller's. Lock held. */
void sink_remove_asked(struct sink *s, struct sink_file *f);

/* sink_small.c: 1: it was whole in this block, and reader is behind it; 0: it is not. */
int sink_take_small(struct sink_lane *l, struct reader *reader, const struct record_file *r);

/* sink_file.c */
/* A piece of a file: bytes (block: those of a whole block), or none: a hole, or what it has. */
struct piece {
	uint32_t id;
	uint64_t pos, len;
	const uint8_t *bytes;
	const struct block *block;
	bool have;
};
int sink_take_file(struct sink_lane *l, const struct record_file *r);
int sink_take_xattr(struct sink_lane *l, const struct record_xattr *r);
int sink_take_end(struct sink_lane *l, const struct record_file_end *r);
/* Lock held. */
struct sink_file **sink_file_slot(struct sink *s, uint32_t id);
void sink_file_free(struct sink_file *f);
/* What to call it. */
const char *sink_shown(const struct sink_file *f);
/*
 * The file failed here, with this thread's failure: from now on its bytes are dropped, and the
 * source hears of it at once.  -1: it was no fault of the file.
 */
int sink_fail_file(struct sink_lane *l, struct sink_file *f);
/* This lane has done with f (f->busy) for now; whoever is the last one finishes it. */
int sink_release_file(struct sink_lane *l, struct sink_file *f);
/* Drop all that are not finished; keep: for a later run. */
void sink_drop_files(struct sink *s, bool keep);

/* sink_piece.c */
int sink_take_piece(struct sink_lane *l, const struct piece *p);
/* sink_turn.c: lock held: wait until it is this piece's turn, or it doesn't matter any more. */
int sink_await_turn(struct sink_lane *l, struct sink_file *f, const struct piece *p);
/* Add what d has, and begin it anew. */
void sink_drain_digest(struct digest *d, uint64_t sum[2], uint64_t solid[2]);

/* sink_store.c: a file of which all has come. */
struct sink_whole {
	const struct record_file *r;
	const struct record_file_end *end;
	struct sink_dir *dir;
	bool left; /* it is left out: its bytes go nowhere */
	struct placement *placement; /* taken.  NULL: one without bytes, or the stream */
	const struct outlet *out;
	struct xattrs *xattrs;
	const char *link; /* a symlink's target */
	const uint8_t *bytes; /* of a small one; else NULL, and: */
	const uint64_t *solid;
	uint64_t reach; /* of what came, or was there */
};
/* Finish it, and tell the user of it.  A failure is the file's, but for OUT_PROTOCOL. */
int sink_store(struct sink_lane *l, struct sink_whole *w);
/* Does it end as it must? */
int sink_check_end(const struct record_file *r, const struct record_file_end *e,
		   const uint64_t sum[2], const char *shown);
/* Count its FILE_END; good: it is stored, else it failed. */
void sink_count_end(struct sink_lane *l, const struct record_file *r,
		    const struct record_file_end *e, bool good);
/* Which kind of event it makes. */
enum event_what sink_event_what(uint8_t type);

/* sink_verify.c: read it back, past the page cache where that can be. */
int sink_verify_small(struct sink_lane *l, int fd, const char *shown, const uint8_t *bytes,
		      size_t len);
int sink_verify(struct sink_lane *l, int fd, const char *shown, uint64_t base, uint64_t size,
		const uint64_t solid[2]);

/* sink_cells.c */
/* Make l->scratch. */
int sink_alloc_scratch(struct sink_lane *l);
/* Digest what fd has of the file r, and send it as CELLS; cells that are not all there, or lie in
 * holes, or for which there is no room to remember them, are left out.  *out is what was told
 * (NULL: nothing); out NULL: it is not wanted.  1: it can't be read, or changes: this thread's
 * failure.  -1: the session fails. */
int cells_send(struct sink_lane *l, const struct record_file *r, int fd, struct cells **out);
void cells_free(struct cells *c);
/* Were all cells from pos to pos + len told, and not taken yet?  They are now; their digests are
 * added to sum, those that are not all zero to solid too. */
bool cells_take(struct cells *c, uint64_t pos, uint64_t len, uint64_t sum[2], uint64_t solid[2]);

/* sink_result.c */
/* All that this lane has to tell; before it goes on to something long, or waits. */
int sink_flush(struct sink_lane *l);
int sink_queue_stored(struct sink_lane *l, uint32_t id);
int sink_queue_answer(struct sink_lane *l, uint32_t id, enum answer answer);
int sink_send(struct sink *s, uint8_t type, const struct writer *w);
int sink_send_result(struct sink *s, uint32_t id, const struct failure *f);
/* Something in d (NULL: the target) failed; many: it was one of several. Lock held. */
void sink_note_one_failed(struct sink *s, const struct sink_dir *d, bool many);
/* This thread's failure is that of id, called name in d: everybody hears of it, and 0; -1: it
 * is no fault of its own, but the session's. */
int sink_report_failed(struct sink_lane *l, uint32_t id, enum event_what what,
		       const struct sink_dir *d, const char *name, bool many);
/* What became of name in d, or would. */
void sink_report_event(struct sink_lane *l, const struct sink_dir *d, const char *name,
		       const struct change *c, bool sent, uint64_t size, const char *digest);
/* The same of what was deleted, path cut in front if it is too long; why NULL: it was. */
void sink_report_deleted(struct sink *s, enum event_what what, const char *path,
			 const struct failure *why);
void sink_sums_add(struct sink_sums *to, const struct sink_sums *from);

/* sink_end.c: the source said END: 0, or 1 if it was one file only; -1: the session fails. */
int sink_complete(struct sink *s);

#endif
