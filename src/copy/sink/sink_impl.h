/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SINK_SINK_IMPL_H
#define COPY_SINK_SINK_IMPL_H

/*
 * Private header of the sink.  The thread of each lane takes what arrives on it, block by block:
 *
 *	sink.c              the threads, records, and the run
 *	sink_dir.c          directories, what is kept of them, and owners
 *	sink_accept.c       checks that the user asked for what arrives
 *	sink_answer.c       answers questions: must this file be sent?
 *	sink_sent_cells.c   sends digests of the cells that exist, and remembers them
 *	sink_small.c        files that fit whole into one block: most files
 *	sink_file.c         all other files, from several blocks, on several lanes
 *	sink_piece.c        the bytes of those; sink_turn.c: the order of ordered files
 *	sink_finish_file.c  finishes either kind; sink_verify.c: reads back what was stored
 *	sink_result.c       reports to the source and the user
 *	sink_finish_run.c   END, deletions, DONE
 *
 * Lanes make directories, and begin, store and finish files, without the copy's lock.  They hold it
 * only for tables and counts.
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
#include "copy/sink/sink.h"
#include "copy/times.h"

enum {
	SINK_OPEN_MAX = 256, /* files that were announced and are not finished */
	SINK_CLONED_MAX = 512, /* files with ANSWER_CLONED whose FILE has not arrived */
	/* files with ANSWER_RESUME whose FILE has not arrived: a descriptor each */
	SINK_RESUMED_MAX = 64,
	SINK_COMPARED_MAX = 4096, /* files with ANSWER_COMPARE, for which SAME may arrive */
	/* All directories of a tree are kept until the end.  These limit what a peer can make this
	 * end hold: room for a million directories with some attributes. */
	SINK_DIRS_BYTES_MAX = 384 << 20,
	SINK_DIR_XATTRS_MAX = 128 << 20,
	/* Of one directory, without its name: 320 bytes were measured; since then 16 more here and
	 * in the place each, and up to 24 in the set of its inodes, by their sizes. */
	SINK_DIR_COST = 376,
	SINK_XATTR_COST = 128, /* of one attribute, without its name and value */
	SINK_BUCKETS = 1024,
	/* bytes of attributes, of all files that were asked about */
	SINK_ASKED_XATTRS_MAX = 64 << 20,
	/* bytes of digests that were sent, of all files to be resumed */
	SINK_CELLS_BYTES_MAX = 256 << 20,
	SINK_UNKEPT_REPORTED = 10, /* messages about metadata that could not be preserved */
	SINK_RESUME_MIN = 4 << 20, /* smaller files are sent anew, not resumed */
};

/* ---- directories ---------------------------------------------------------------------- */

enum sink_state {
	SINK_OPENING,
	SINK_OPEN,
	SINK_FAILED, /* a file: its bytes are dropped; a directory: everything in it fails */
	SINK_ASKED, /* a file that was asked about and has no answer yet */
	SINK_RESUMED, /* answered RESUME or CLONED: its FILE may arrive */
	SINK_COMPARED, /* answered COMPARE: its FILE may arrive, or SAME */
};

struct sink_dir {
	uint32_t id, want;
	struct sink_dir *parent; /* NULL: the target */
	struct sink_dir *later; /* announced after it */
	struct place_dir *place; /* NULL: it failed, or is left out */
	/* left out with everything in it, because with --ignore-existing something else exists,
	 * or because with --existing nothing exists */
	bool left_out;
	const struct files_from_node *listed; /* the part of --files-from in it; NULL: nothing */
	char *name; /* only if it has no place */
	uint64_t hash; /* of its record */
	bool reported_last; /* its change is reported when its attributes are known */
	struct change change;
	bool all_wanted; /* everything in it was requested */

	/* Under the copy's lock: */
	enum sink_state state;
	uint64_t announced; /* lanes that DIR arrived on, a bit for each */
	struct xattrs *xattrs;
	bool unread; /* the source could not read its attributes */
	uint8_t xattr_lane, keep_lane; /* 1 + the only lane for attributes, for KEEP; 0: none yet */
	bool keep_complete; /* the last KEEP arrived */
	uint64_t failed_inside; /* of a failed directory in a good one: how many things in it */
};

struct sink_dirs { /* under the copy's lock */
	struct table by_id;
	/* As they were announced, each after its parent.  What opens all of them goes this way: a
	 * directory's parent is then open, or near one that is. */
	struct sink_dir *first, *last;
	size_t bytes; /* estimate of what is kept of them here and in the place */
};

/* ---- files ---------------------------------------------------------------------------- */

/* Digests of cells that were sent to the source. */
struct sent_cells;

struct sink_file {
	struct sink_file *next;
	struct record_file r;
	struct sink_dir *dir; /* NULL: the target */
	struct placement *placement; /* NULL: none, or the stream's descriptor */
	struct outlet out; /* fd -1: bytes go to link, or are dropped */
	char *symlink_target;
	char *shown; /* its name for messages while it has no outlet; NULL: r.name */
	bool resumed; /* asked about: for ANSWER_RESUME or CLONED; else for ANSWER_COMPARE */
	bool cloned; /* the temporary already has all of it */
	bool left_out; /* of unknown size, and --existing leaves it out */
	struct sent_cells *cells; /* with ANSWER_RESUME: those that HAVE may name */
	bool ordered; /* stored in order of position */
	struct digest *digest; /* of an ordered file; used by the lane that has the turn */
	struct digest *partial[LANE_COUNT_MAX]; /* of the cell that is arriving on that lane */

	/* Under the copy's lock: */
	enum sink_state state;
	uint64_t announced; /* lanes that FILE arrived on, a bit for each */
	uint64_t turn; /* ordered: everything before it is stored */
	bool storing; /* by a lane: the next piece */
	uint64_t storing_since_ns;
	uint64_t data, holes; /* bytes that arrived as data; as holes, or named by HAVE */
	uint64_t had; /* of holes: named by HAVE */
	uint64_t reach; /* the greatest end of a piece that is not a hole */
	uint64_t sum[2];
	uint64_t nonzero_sum[2]; /* --verify: like sum, without cells that are all zero */
	struct xattrs *xattrs;
	size_t xattr_bytes; /* of a file that was asked about */
	unsigned busy; /* lanes that work on it */
	bool ended;
	struct record_file_end end;
	bool failure_reported; /* or about to be reported */
};

/* ---- lanes ---------------------------------------------------------------------------- */

/* What one lane has counted and not added to the sink's sums yet. */
struct sink_sums {
	struct msg_total ended; /* what FILE_END, DIR and SAME records, and answers, add up to */
	struct msg_total stored; /* what is completed */
	struct msg_counts counts;
	uint64_t bytes, files; /* for the tally */
	bool any;
};

/* Results and answers of one lane that wait to be sent, and buffers for them. */
struct sink_mail {
	struct msg_stored stored;
	struct msg_answers answers;
	struct msg_cells cells;
	uint8_t body[FRAME_BODY_MAX];
	char path[EVENT_PATH_MAX];
};

/* A FILE with ASK, while its attributes arrive. */
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
	struct record record, ahead; /* the current one, and those behind it */
	struct digest *digest; /* of whole cells, and of small files */
	struct sink_dir *dir; /* used last on this lane */
	struct sink_question question;
	struct sink_sums sums;
	struct sink_mail *mail;
	_Atomic pid_t tid;
	uint8_t *scratch; /* a cell, aligned for O_DIRECT, to read back into */

	/* Under the copy's lock: */
	pthread_cond_t wakeup; /* signalled when *waits_for may have changed */
	const void *waits_for; /* a file or directory; NULL: none */
	const struct sink_file *ordered_file; /* the file whose turn it waits for; NULL: none */
	uint64_t ordered_pos; /* where its piece begins */
	struct lane_use use;
};

struct sink {
	struct copy *copy;
	struct session *session;
	const struct sink_opts *o;
	const struct rules *rules;
	struct rules plain;
	struct place *place; /* NULL: writes to the stream's descriptor */
	struct owners *owners;
	atomic_int kind; /* of what is written: enum stage_kind */
	struct writeback writeback;
	struct clones clones;
	atomic_uint unkept; /* things without some metadata that was asked for */
	struct failure first_unkept; /* of those; read when the lanes have finished */
	/* already warned that a file cannot be written past the page cache */
	atomic_bool direct_missed;

	/* Under the copy's lock: */
	bool stream_taken;
	bool only_failed; /* the only file that the user named failed */
	struct sink_file *files[SINK_BUCKETS];
	unsigned count; /* files that were announced and are not finished */
	unsigned resumed, compared; /* files that were asked about */
	size_t asked_xattr_bytes, dir_xattr_bytes;
	atomic_size_t cells_bytes; /* not under the lock */
	struct sink_dirs dirs;
	unsigned busy_lanes; /* that work on a block */
	struct sink_sums sums;

	struct sink_lane lanes[LANE_COUNT_MAX];
	struct worker workers[LANE_COUNT_MAX];
};

static inline uint64_t sink_lane_bit(const struct sink_lane *l)
{
	return UINT64_C(1) << l->index;
}

/* sink.c.  Lock held.  Waits until object may have changed, but at most ms (0: no limit). */
void sink_wait(struct sink_lane *l, const void *object, uint64_t ms);
void sink_wake(struct sink *s, const void *object);
/* The times of the lanes.  ns_finish: the time after END. */
void sink_times(struct sink *s, uint64_t ns_finish, struct msg_times *m);

/* sink_dir.c.  Take a record that arrived on this lane.  -1, here and below: the session fails. */
int sink_take_dir(struct sink_lane *l, const struct record_dir *r);
int sink_take_keep(struct sink_lane *l, const struct record_keep *r);
int sink_take_origin(struct sink_lane *l, const struct record_origin *r);
int sink_take_owner(struct sink_lane *l, const struct record_owner *r);
/* 1: there is no directory with that id. */
int sink_take_dir_xattr(struct sink_lane *l, const struct record_xattr *r);
/* NULL: none.  Lock held. */
struct sink_dir *sink_dir_find(struct sink *s, uint32_t id);
/* The directory, announced on this lane, of a file; *out is NULL for id 0. */
int sink_require_dir(struct sink_lane *l, uint32_t id, struct sink_dir **out);
static inline bool sink_dir_is_left_out(const struct sink_dir *d)
{
	return d && d->left_out;
}
/* If d failed: -1 with a failure for name in it. */
int sink_dir_check(const struct sink *s, const struct sink_dir *d, const char *name);
/* If the directory d failed (NULL: the target): counts one more thing in it as failed for that
 * reason, and returns true.  Lock held. */
bool sink_dir_count_failed(struct sink *s, const struct sink_dir *d);
/* At the end: logs how many things failed with each failed directory. */
void sink_dirs_report_failed(struct sink *s);
/* The path of name in d (NULL: the target) from the top of the transfer. */
size_t sink_path(const struct sink_dir *d, const char *name, char *to, size_t size);
/* The path of name in d for messages, written to `to', which it returns.  Preserves errno. */
const char *sink_name_shown(const struct sink *s, const struct sink_dir *d, const char *name,
			    char to[static SHOWN_ROOM]);
/* Checks the attributes x (NULL: none) that came for name in d, and translates the ids in them to
 * this host's. */
int sink_take_xattrs(const struct sink *s, struct xattrs *x, const struct sink_dir *d,
		     const char *name);
/* The same for the file r, whose mode --chmod may have changed. */
int sink_take_file_xattrs(const struct sink *s, const struct record_file *r, struct xattrs *x,
			  const struct sink_dir *d);
/* d->place; NULL for NULL. */
struct place_dir *sink_dir_place(const struct sink_dir *d);
/* Gives the place the attributes of all directories.  At the end, when no lane is at work. */
int sink_dirs_give_xattrs(struct sink *s);
void sink_dirs_free(struct sink *s);

/* sink_accept.c.  -1, OUT_PROTOCOL: the user did not ask for it.  For a directory sets d->all and
 * d->listed. */
int sink_accept_dir(const struct sink *s, const struct record_dir *r, struct sink_dir *d);
int sink_accept_file(const struct sink *s, const struct record_file *r, const struct sink_dir *d);
/* Is name what one of several sources becomes in the target? */
bool sink_wants_name(const struct sink *s, const char *name);

/* sink_answer.c */
int sink_take_question(struct sink_lane *l, const struct record_file *r);
int sink_add_xattr(struct sink_lane *l, const struct record_xattr *r);
/* No more of the question will arrive: answers it. */
int sink_answer(struct sink_lane *l);
int sink_take_same(struct sink_lane *l, const struct record_same *r);
/* Frees what waits for its FILE.  When no lane is at work. */
void sink_forget_asked(struct sink *s);
/* Removes a file that was asked about from the table; the caller owns it then.  Lock held. */
void sink_remove_asked(struct sink *s, struct sink_file *f);

/* sink_small.c.  1: the file was whole in this block, and reader is behind it.  0: it was not. */
int sink_take_small(struct sink_lane *l, struct reader *reader, const struct record_file *r);

/* sink_file.c */
/* A piece of a file.  bytes: data (block: the whole block); NULL: a hole or, with have, bytes that
 * this end already has. */
struct piece {
	uint32_t id;
	uint64_t pos, len;
	const uint8_t *bytes;
	const struct block *block;
	bool have;
};
int sink_take_file(struct sink_lane *l, const struct record_file *r);
int sink_take_xattr(struct sink_lane *l, const struct record_xattr *r);
int sink_take_file_end(struct sink_lane *l, const struct record_file_end *r);
/* The slot where the file of that id is, or would be.  Lock held. */
struct sink_file **sink_file_slot(struct sink *s, uint32_t id);
void sink_file_free(struct sink_file *f);
/* Its name for messages. */
const char *sink_shown(const struct sink_file *f);
/*
 * The file failed here, with this thread's failure.  From now on its bytes are dropped, and the
 * source is informed at once.  -1: the session failed, not the file.
 */
int sink_fail_file(struct sink_lane *l, struct sink_file *f);
/* This lane has finished its work on f (f->busy).  The last lane finishes the file. */
int sink_release_file(struct sink_lane *l, struct sink_file *f);
/* Drops all files that are not finished.  keep: keeps what a later run can resume. */
void sink_drop_files(struct sink *s, bool keep);

/* sink_piece.c */
int sink_take_piece(struct sink_lane *l, const struct piece *p);
/* sink_turn.c.  Lock held.  Waits for this piece's turn, or until f or the session fails. */
int sink_await_turn(struct sink_lane *l, struct sink_file *f, const struct piece *p);
/* Adds what d has summed up, and resets d. */
void sink_drain_digest(struct digest *d, uint64_t sum[2], uint64_t nonzero_sum[2]);

/* sink_finish_file.c.  A file that has arrived completely. */
struct sink_whole {
	const struct record_file *r;
	const struct record_file_end *end;
	struct sink_dir *dir;
	bool left_out; /* it is left out: its bytes were dropped */
	struct placement
		*placement; /* sink_finish_file() takes it; NULL: no bytes, or the stream */
	const struct outlet *out;
	struct xattrs *xattrs;
	const char *symlink_target;
	const uint8_t *bytes; /* of a small file; else NULL, and nonzero_sum is set */
	const uint64_t *nonzero_sum;
	uint64_t reach; /* end of the last byte that arrived, or existed already */
};
/* Finishes the file, and reports it to the user.  A failure is the file's, except for
 * OUT_PROTOCOL. */
int sink_finish_file(struct sink_lane *l, struct sink_whole *w);
/* Does its FILE_END match what arrived? */
int sink_check_file_end(const struct sink *s, const struct sink_dir *d, const struct record_file *r,
			const struct record_file_end *e, const uint64_t sum[2]);
/* Counts its FILE_END.  good: it is stored; else it failed. */
void sink_count_file_end(struct sink_lane *l, const struct record_file *r,
			 const struct record_file_end *e, bool good);
/* The kind of event for a record type. */
enum event_what sink_event_what(uint8_t type);

/* sink_verify.c.  Read back what was stored, past the page cache where possible. */
int sink_verify_small(struct sink_lane *l, int fd, const char *shown, const uint8_t *bytes,
		      size_t len);
int sink_verify(struct sink_lane *l, int fd, const char *shown, uint64_t base, uint64_t size,
		const uint64_t nonzero_sum[2]);

/* sink_sent_cells.c */
/* Allocates l->scratch. */
int sink_alloc_scratch(struct sink_lane *l);
/* Digests what fd has of the file that q asks about, and sends that as CELLS.  Omits cells that are
 * incomplete, that lie in holes, or that exceed SINK_CELLS_BYTES_MAX.  *out: what was sent (NULL:
 * nothing), for sent_cells_take(); out NULL: not wanted.  1: fd cannot be read, or changes, with
 * this thread's failure.  -1: the session fails. */
int sink_send_cells(struct sink_lane *l, const struct sink_question *q, int fd,
		    struct sent_cells **out);
void sent_cells_free(struct sent_cells *c);
/* If all cells from pos to pos + len were sent and not taken yet: takes them, adds their digests to
 * sum, and those of cells that are not all zero also to nonzero_sum. */
bool sent_cells_take(struct sent_cells *c, uint64_t pos, uint64_t len, uint64_t sum[2],
		     uint64_t nonzero_sum[2]);

/* sink_result.c */
/* Sends what this lane has queued.  Call before it does something long, or waits. */
int sink_flush(struct sink_lane *l);
int sink_queue_stored(struct sink_lane *l, uint32_t id);
int sink_queue_answer(struct sink_lane *l, uint32_t id, enum answer answer);
int sink_send(struct sink *s, uint8_t type, const struct writer *w);
int sink_send_result(struct sink *s, uint32_t id, const struct failure *f);
/* Something in d (NULL: the target) failed; many: it was one of several.  Lock held. */
void sink_note_only_failed(struct sink *s, const struct sink_dir *d, bool many);
/* This thread's failure is that of id, called name in d: reports it to the user and the source.
 * -1: it is the session's failure. */
int sink_report_failed(struct sink_lane *l, uint32_t id, enum event_what what,
		       const struct sink_dir *d, const char *name, bool many);
/* Reports what happened to name in d, or would. */
void sink_report_event(struct sink_lane *l, const struct sink_dir *d, const char *name,
		       const struct change *c, bool sent, uint64_t size, const char *digest);
/* As sink_report_event(), for a deletion; why NULL: it succeeded.  A path that is too long is cut
 * at its front. */
void sink_report_deleted(struct sink *s, enum event_what what, const char *path,
			 const struct failure *why);

/* sink_finish_run.c.  The source sent END.  0; 1: the only file failed; -1: the session fails. */
int sink_finish_run(struct sink *s);

#endif
