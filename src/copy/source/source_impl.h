/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_IMPL_H
#define COPY_SOURCE_SOURCE_IMPL_H

/*
 * Private header of the source.  The thread of each lane does one job after the other:
 *
 *	source.c              the run, and the threads
 *	source_lane.c         chooses the next job and does it
 *	source_walk.c         continues the walk (walk.h); what --delete must not touch
 *	source_item.c         one thing that the walk found: opens it; sends it, asks about it, or
 *	                      leaves it out
 *	source_ask.c          files that the sink is asked about first, kept aside meanwhile
 *	source_known_cells.c  the cells of a file that the sink has
 *	source_small.c        files that fit whole into one block: most files
 *	source_file.c         all other files and streams: opens and reads them
 *	source_large_files.c  the list of those with pieces left to claim
 *	source_piece.c        sends pieces of them
 *	source_other.c        symlinks, devices and hard links, after all files
 *	source_block.c        the block that a lane fills: gets and sends it, and paces
 *	source_records.c      puts records into it: directories, owners, attributes
 *	source_result.c       the sink's results; source_removal.c: removes stored sources
 *	source_marker.c       marks a move that is not completed
 *	source_seen.c         what was read; everything later uses it
 *	source_ids.c, source_links.c: tables of ids and of hard links
 *
 * A lane claims several small files at a time, and reads and packs them into a block without the
 * copy's lock.  It publishes them to the thread that takes results right before it sends their
 * block.  A lane alternates between a piece of a large file and a block of small ones, so neither
 * kind waits for the other.
 *
 * An ordered sink never waits for ever.  Pieces are claimed one after the other, those of one file
 * in order of position, and a lane sends what it has claimed before it claims again.  So of all
 * pieces that are not stored yet, the one that was claimed first is at the head of its lane, and
 * its turn has come.  A file that fits whole into one block has its turn at once.
 *
 * Questions never block a run.  A lane waits for an answer only after it has sent everything it
 * has.  A sink answers the questions of a block as soon as it reaches that block.  That waits only
 * for the turn of an ordered file, which waits for no answer.
 */

#include "base/table.h"
#include "base/worker.h"
#include "copy/attr/modes.h"
#include "copy/attr/owners.h"
#include "copy/attr/xattrs.h"
#include "copy/io/clone.h"
#include "copy/run.h"
#include "copy/source/source.h"
#include "copy/source/source_file.h"
#include "copy/source/source_ids.h"
#include "copy/source/source_known_cells.h"
#include "copy/source/source_links.h"
#include "copy/source/source_seen.h"
#include "copy/times.h"
#include "copy/walk/find.h"
#include "copy/walk/walk.h"

enum {
	UNFINISHED_MAX = 128, /* large files without a result */
	/* Bytes of a large file that take about as long as a small file.  Measured: a small file
	 * takes 0.02 ms in memory and 0.05 ms on ext4; 64 and 50 KiB of a large file are stored in
	 * that time. */
	SMALL_WEIGHT = 64 << 10,
	/* With several large files: bytes that are read of the oldest before the shortest has its
	 * turn, and vice versa.  Not fewer, so that a disk that has to seek does not do so all the
	 * time. */
	LARGE_TURN = 8 << 20,
	SMALL_MAX = CELL, /* files up to this size go whole into one block, if it has room */
	/* from this size on the sink may have a part of a file, so it is asked */
	RESUME_MIN = 4 << 20,
	ASIDE_MAX = 4096, /* files kept aside, roughly */
	/* With --checksum: files kept aside, and as many again in flight, of which the sink sent
	 * cells.  It remembers at most 4096 of both (SINK_COMPARED_MAX). */
	COMPARED_MAX = 1500,
	QUEUE_LOW = 512, /* the walk continues when fewer entries wait */
	TAKE_MAX = 32, /* entries that a lane takes at a time */
	TOPS_MAX = 64, /* top directories for which it is remembered whether the sink made them */
	OFFERED_MAX = 256, /* files offered for cloning that have no answer yet */
	CLONE_TRIES = 4, /* refusals without a success, after which no more files are offered */
	/* How long a lane waits for something other than its wire while something that it sent may
	 * not be stored yet. */
	UNCONFIRMED_MS = 200,
	SPARE_MAX = 31, /* blocks besides the one that is being filled */
	UNPUBLISHED_MAX = 128, /* files that a lane has completed and not published */
	/* Of the records of a small file, without its bytes and its attributes. */
	SMALL_ROOM = RECORD_FILE_MAX + RECORD_DATA_HEAD + RECORD_FILE_END_MAX - (TEXT_MAX - 1),
	END_ROOM = RECORD_FILE_END_MAX - (TEXT_MAX - 1), /* of a FILE_END without text */
};

/* ---- what waits ----------------------------------------------------------------------- */

/* A regular file, not open, that waits for its answer or for a lane. */
struct aside {
	struct aside *next;
	uint32_t id; /* 0: none yet, because it was not asked about */
	uint32_t want, flags;
	struct walk_dir *dir; /* a reference; NULL: the target */
	uint8_t answer; /* 0: none yet */
	uint64_t size; /* when it was examined */
	uint64_t question_hash; /* a hash of the question; 0: not kept */
	bool permission_only; /* the question was only whether it may be replaced */
	struct link_group *group; /* the group that it leads; NULL: none */
	bool offered; /* for cloning, in the state `seen' */
	struct seen seen;
	struct known_cells *known; /* cells that the sink has; NULL: none */
	struct removal *removal; /* of an empty file, in case the target is the same; NULL: none */
	const char *path; /* as the user named it, stored behind name; NULL: found in dir */
	char name[];
};

/* Something other than a regular file or a directory, or one more name of a file. */
struct other {
	struct walk_dir *dir; /* a reference; NULL: the target */
	char *path; /* as the user named it; NULL: found in dir by its name */
	struct link_group *group; /* of the file that this is one more name of; NULL: none */
	uint32_t want;
	char name[NAME_ROOM];
};
/* As struct other, with borrowed pointers. */
struct new_other {
	struct walk_dir *dir;
	const char *path, *name;
	struct link_group *group;
	uint32_t want;
};
struct other_chunk;
struct others {
	struct other_chunk *first, *last;
	uint64_t count;
};

/* A source that is to be removed once it is stored. */
struct removal;

/*
 * An inode that we removed a name of.  That changes its ctime.  So for an inode with more names
 * this keeps between which ctimes nothing else happened.
 */
struct unlinked {
	struct inode_key inode;
	struct timespec since, until;
};

/* ---- lanes ---------------------------------------------------------------------------- */

struct source_entry {
	struct walk_piece *piece;
	enum walk_type type;
	const char *name;
};

/* A small file or a question that is not published yet. */
struct source_unpublished {
	uint32_t id;
	enum live kind;
	struct live_file file;
};

struct source_lane {
	struct source *source;
	struct lane *lane;
	unsigned index;
	struct block *block; /* lent by the lane; NULL: none */
	struct block *spare[SPARE_MAX]; /* also lent, to be read into together, or for later */
	unsigned spares;
	struct writer records; /* into block: records not sent yet */
	bool roots_known; /* --backup-dir: the ORIGIN of each source was sent */
	bool records_sent; /* a block of records was sent since the last job was picked */
	bool unconfirmed; /* a block was sent since everything was known to be stored */
	bool paced; /* --bwlimit has already delayed what is sent next */
	uint64_t large_due; /* bytes of large files that come before the next small files */
	struct lane_use use;
	struct digest *digest;
	uint8_t *scratch; /* a cell */
	struct sizes_cache sizes;

	uint32_t next_id, end_id; /* ids reserved for this lane: from next_id to before end_id */
	struct source_entry taken[TAKE_MAX];
	unsigned taken_at, taken_count;
	struct aside *asides; /* taken from struct asides */
	struct other others[TAKE_MAX];
	unsigned other_count;
	unsigned compared_count; /* in this block: files that were compared */
	uint64_t small_bytes; /* in this block, of small files; not in the tally yet */
	unsigned small_count; /* small files in this block */
	struct source_unpublished unpublished[UNPUBLISHED_MAX];
	unsigned unpublished_count;

	struct walk_dir *dir; /* its descriptor is in use; a reference */
	int dirfd;
	struct {
		bool known;
		uint32_t id;
	} owner[2]; /* announced last; [0] user, [1] group */
	struct walk_dir *kept; /* the directory whose names are in keep */
	struct writer keep;
	uint8_t keep_room[2048];
	struct msg_counts counts;

	/* Under the copy's lock: */
	bool busy; /* what it does may lead to more work */
	bool taking; /* what it does may find more files */
	bool same_unconfirmed; /* it sent a SAME since everything was known to be stored */
};

/* Files that were offered for cloning. */
struct clone_offers {
	atomic_uint open, refused; /* without an answer; answered, but not cloned */
	atomic_bool taken; /* one was cloned */
};

/* What the walk found and no lane has taken.  Under the copy's lock, as everything below. */
struct walk_queue {
	bool walking, over;
	struct walk_piece *first, **end;
	uint32_t entries; /* in these pieces */
};

/* Files kept aside, with and without an answer. */
struct asides {
	struct aside *ready[2], **ready_end[2]; /* with an answer; [0] small, [1] large */
	unsigned count; /* with and without an answer */
	unsigned max; /* of count, roughly */
	unsigned compared_max; /* compared files in a block */
	unsigned sames_unconfirmed; /* lanes that sent a SAME which may not have reached the sink
				       yet */
};

/* Files that do not fit whole into one block, begun and without a result. */
struct large_files {
	unsigned count;
	bool unsized; /* the size of one of them is unknown */
	/* large files that failed at the sink, and that a thread may be blocked in reading */
	unsigned failed_at_peer;
	struct source_file *open, **open_end; /* with bytes left to claim, the oldest first */
	/* The shortest open one when turn shortest_turn began; NULL: not determined. */
	struct source_file *shortest;
	uint64_t shortest_turn;
	atomic_bool is_open; /* open is not empty; for threads without the lock */
	_Atomic uint64_t claimed; /* bytes of large files so far */
};

/* Sources to be removed, once they are stored. */
struct removals {
	struct removal *due, **due_end; /* now */
	struct removal *linked; /* when all names have been found */
	struct removal *same; /* compared equal: after DONE, unless a failure arrives first */
	struct removal *lookalikes; /* after all others */
	struct table unlinked; /* by inode; the main thread's, without the lock */
	bool late; /* only after DONE */
};

struct marked_dir;

struct source {
	struct copy *copy;
	struct session *session;
	const struct source_opts *o;
	const struct rules *rules;
	struct rules plain;
	struct found found;
	struct hash_set root_names; /* --backup: last components of found, if there are several */
	struct walk *walk; /* used by the lane that has set walking */
	struct owners *owners; /* NULL: owners are not sent */
	struct modes *modes;
	uint64_t small_max; /* size up to which a file fits whole into one block */
	atomic_size_t known_bytes; /* of cell digests that the sink sent and that are kept */
	struct clone_offers clones;
	/* already warned that a file cannot be read past the page cache */
	atomic_bool direct_missed;
	enum stage_kind kind; /* of what is read */
	bool only; /* the user asked for one file or stream */
	bool asks; /* asks the sink about large files */
	bool asks_all;
	bool removes; /* removes sources that the sink has in the end */

	/* Under the copy's lock: */
	struct walk_queue walked;
	struct asides asides;
	struct others others, hard_links;
	unsigned phase; /* 0: files; 1: others; 2: hard links */
	unsigned busy, taking; /* how many lanes are busy, or taking */
	unsigned working; /* threads of lanes */
	uint64_t unfinished; /* files that were begun and have no result */
	struct large_files large;
	struct ids ids;
	struct links links;
	struct removals removals;
	struct marked_dir *marked; /* directories that contain a marker */
	bool continues_move; /* a marker was found */
	bool moved_before; /* one was found in a SRC or above it, before anything was sent */
	struct walk_dir *named_dir; /* of the source file that the user named, used last */
	/* references to the first directories that are in no other */
	struct walk_dir *tops[TOPS_MAX];
	unsigned top_count;
	struct msg_total ended; /* what FILE_END, DIR and SAME records, and answers, add up to */
	struct msg_total agreed; /* what results add up to */

	struct source_lane lanes[LANE_COUNT_MAX];
	struct worker workers[LANE_COUNT_MAX];
};

/* A regular file or stream on its way to the sink. */
struct source_item {
	struct walk_dir *dir; /* NULL: the target */
	const char *name; /* at the target */
	const char *path; /* as the user named it; NULL: found in dir by its name */
	uint32_t want, id, flags;
	bool missing;
	bool linked; /* already checked for an earlier hard link */
	bool permitted; /* the sink reported that it may be replaced */
	bool counted; /* counted as a regular file */
	/* its size was found by reading it, and its bytes are in the lane's scratch */
	bool measured;
	struct link_group *group; /* the group that it leads; NULL: none */
	struct aside *aside; /* with the answer; NULL: it was not asked about */
	int fd;
	/* What is sent, checked, removed and linked is decided by this.  Of the name while the sink
	 * is only asked about it; of the descriptor as soon as that is open. */
	struct stat st;
	uint64_t size; /* from st, unless that size means nothing */
};

/* ---- source_lane.c -------------------------------------------------------------------- */

/* The thread of a lane. */
void *source_lane_run(void *lane);

/* ---- source_large_files.c ------------------------------------------------------------- */

/* Leaves nothing of f to claim.  why: f failed, with this thread's failure. */
void source_exhaust_file(struct source *s, struct source_file *f, bool why);
/* A lane has finished its piece.  True: it was the last piece, and the caller sends the
 * FILE_END. */
bool source_release_file(struct source *s, struct source_file *f, uint64_t data, uint64_t holes,
			 const uint64_t sum[2]);
/* f was compared, and differs: queues it for sending.  No other thread uses f.  Lock held. */
void source_requeue_file(struct source *s, struct source_file *f);
/* Gives f an id, unless it has one, and lets all lanes claim pieces of it.  Takes f; frees it on
 * failure. */
int source_add_file(struct source_lane *l, struct source_file *f);

/* ---- source_block.c ------------------------------------------------------------------- */

/* Takes an id for something that this lane sends. */
int source_take_id(struct source_lane *l, uint32_t *id);
/* Gives back an unused id, if it is the last one that this lane took. */
void source_return_id(struct source_lane *l, uint32_t id);
int source_get_block(struct source_lane *l);
/* As source_get_block(), with as many spare blocks as are free, for at most `bytes' bytes in all.
 * *count: how many blocks there are. */
int source_get_blocks(struct source_lane *l, uint64_t bytes, unsigned *count);
/* Delays the next block, of len bytes, for --bwlimit.  Otherwise source_send() does. */
int source_pace(struct source_lane *l, uint32_t len);
int source_send(struct source_lane *l, enum block_kind kind, uint32_t file, uint64_t pos,
		uint32_t len);
int source_send_records(struct source_lane *l);
/* Makes room for len bytes of records in the block, if necessary by sending it. */
int source_reserve_room(struct source_lane *l, size_t len);
/* Remembers a small file or a question until its block is sent. */
void source_queue_unpublished(struct source_lane *l, const struct source_unpublished *d);
/* Publishes what this lane remembers; sending the block does so too.  Lock held. */
void source_publish_locked(struct source_lane *l);

/* ---- source_records.c ----------------------------------------------------------------- */

/* Call when the sources are found. */
int source_note_root_names(struct source *s);
/* DIR records of d (NULL: none), of the directories above it, and OWNER records of their owners,
 * unless this lane has sent them. */
int source_put_dir(struct source_lane *l, struct walk_dir *d);
/* The identity of a file that the user named, before its first record on each lane.  in: the
 * directory that it will be in at the sink, NULL: the target; name: its name there. */
int source_put_origin(struct source_lane *l, uint32_t want, struct walk_dir *in, const char *name,
		      const struct stat *st);
/* With --backup, before the first record of name in d (NULL: the target) on each lane: names it
 * with the suffix of backups, if the source has such a file too.  The sink then chooses other names
 * for backups. */
int source_put_lookalikes(struct source_lane *l, uint32_t want, struct walk_dir *d,
			  const char *name);
/* OWNER records for a, and for the users and groups that x names. */
int source_put_owners(struct source_lane *l, const struct record_attr *a, const struct xattrs *x);
int source_put_xattrs(struct source_lane *l, uint32_t id, const struct xattrs *x);
/* Those of the directory could not be read. */
int source_put_unread(struct source_lane *l, uint32_t id);
/* How many bytes the records of x need at most, in one block. */
size_t source_xattrs_room(const struct xattrs *x, uint32_t id);

/* ---- source_item.c -------------------------------------------------------------------- */

int source_send_entries(struct source_lane *l);
/* Makes l->dirfd a descriptor of d, valid until another directory is used; NULL: none. */
int source_use_dir(struct source_lane *l, struct walk_dir *d);
/* Reports this thread's failure as that of name in d, or of what the user named path.  -1: it is
 * the session's failure. */
int source_report_failed(struct source_lane *l, enum event_what what, struct walk_dir *d,
			 const char *name, const char *path);
/* Calls on_event() for a failure, if the user asked for events.  Lock not held. */
void source_report_event(struct source *s, enum event_what what, struct walk_dir *d,
			 const char *name, const struct failure *why);
const char *item_shown(const struct source_item *it, char *to, size_t size);
int item_open(struct source_lane *l, struct source_item *it);
/* Examines a file that was just found, by its name and path, and sends it, asks about it, or
 * leaves it out. */
int item_take(struct source_lane *l, struct source_item *it);
/* Sends a file, or keeps it aside while there are too many large files. */
int item_send(struct source_lane *l, struct source_item *it);
int item_report_failed(struct source_lane *l, struct source_item *it);
void item_close(struct source_item *it);
/* The FILE record of the file, without the id. */
void item_record(const struct source_lane *l, const struct source_item *it, struct record_file *r);
/* What to remove when the file is stored; *out NULL: nothing. */
int item_removal(struct source_lane *l, const struct source_item *it, struct removal **out);

/* ---- source_small.c ------------------------------------------------------------------- */

bool item_is_small(const struct source_lane *l, const struct source_item *it);
int item_send_small(struct source_lane *l, struct source_item *it);

/* ---- source_ask.c --------------------------------------------------------------------- */

/* Asks about a file, and keeps it aside. */
int source_ask(struct source_lane *l, struct source_item *it);
/* Could the sink share disk blocks with it? */
bool source_may_clone(const struct source *s, const struct source_item *it);
/* The sink's answers, and the cells that it has.  -1 with the session's failure.  Control thread,
 * lock held. */
int source_take_answers(struct source *s, const struct msg_answers *m);
int source_take_cells(struct source *s, const struct msg_cells *m);
/* Call when a file that was offered for cloning has an answer, or failed. */
void source_end_offer(struct source *s, struct aside *a);
/* Asks only whether the file may be replaced, and keeps it aside. */
int source_ask_permission(struct source_lane *l, struct source_item *it);
/* Can an existing target be exempt from replacement (--update, --ignore-existing, --existing)? */
bool source_needs_permission(const struct source *s);
/* Do the rules require that files in d are asked about?  NULL: the target. */
bool source_asks_all(const struct source *s, struct walk_dir *d);
/* Keeps a file aside, unasked, until there is room for one more large file. */
int source_park(struct source_lane *l, struct source_item *it);
int source_send_asides(struct source_lane *l);
void aside_free(struct aside *a);
/* Is the file the same as when it was asked about? */
bool aside_is_current(const struct source_lane *l, const struct source_item *it);

/* ---- source_piece.c ------------------------------------------------------------------- */

int source_send_piece(struct source_lane *l, struct source_file *f);
int source_announce(struct source_lane *l, struct source_file *f);

/* ---- source_other.c ------------------------------------------------------------------- */

/* others_add() and others_take(): lock held. */
int others_add(struct others *t, const struct new_other *o);
unsigned others_take(struct others *t, struct other *to, unsigned most);
void others_free(struct others *t);
int source_send_others(struct source_lane *l);

/* ---- source_walk.c -------------------------------------------------------------------- */

int source_walk(struct source_lane *l);

/* ---- source_removal.c ----------------------------------------------------------------- */

/* To remove name in dir, or (dir NULL) what the user named path in name; seen: what was read.  Lock
 * not held. */
int removal_new(struct source *s, struct walk_dir *dir, const char *name, const struct seen *seen,
		struct removal **out);
void removal_free(struct removal *r); /* accepts NULL */
/* r may be removed now, or when its turn comes; NULL: nothing.  Takes r.  Lock held. */
void removal_queue(struct source *s, struct removal *r);
/* r was compared, and is the same.  It gets a result only if that fails later.  NULL: nothing.
 * Takes r.  Lock held. */
void removal_hold_same(struct source *s, uint32_t id, struct removal *r);
/* No more results will arrive: queues what is the same and did not fail.  Lock held. */
void removals_queue_same(struct source *s);
/* Call when the phase is no longer 0: queues sources with several names.  Lock held. */
void removals_queue_linked(struct source *s);
/* All others have been removed, or have failed: queues names that look like those of backups.  A
 * name that is removed before the file, the backup of which would have it, is stored would be
 * replaced by that backup at the target when a rerun stores the file.  Lock held. */
void removals_queue_lookalikes(struct source *s);
/* Chooses when sources are removed, once they have been found. */
void removals_choose_time(struct source *s);
/* Is a source in the queue that may be removed now?  With --delete a rerun must find all sources
 * until the deletions are done, which DONE confirms.  Lock held. */
bool removals_may_begin(const struct source *s);
/* Removes the first source in the queue.  Lock held; releases it meanwhile. */
void removals_do_next(struct source *s);
void removals_free(struct source *s);

/* ---- source_marker.c ------------------------------------------------------------------ */

/* Looks for markers in the SRCs and above them.  Call when they were found. */
void source_find_first_markers(struct source *s);
/* Looks for a marker in d, and reports it.  Lock not held. */
int source_find_marker(struct source *s, struct walk_dir *d);
/* Call before a file in dir is removed.  Main thread. */
int source_make_marker(struct source *s, struct walk_dir *dir);
/* Call when it was removed.  Main thread. */
void source_need_marker(struct source *s, struct walk_dir *dir);
/* Call at the end.  needed: also those of directories from which files were removed; only if the
 * run has succeeded.  Main thread. */
void source_remove_markers(struct source *s, bool needed);
void source_free_markers(struct source *s);

/* ---- source_result.c ------------------------------------------------------------------ */

/* Fills in f's FILE_END.  From then on f belongs to its result, which may free it at any time. */
void source_end_file(struct source *s, struct source_file *f, struct record_file_end *r);
/* f was compared.  True: it is the same, and f is freed.  Else it was queued for sending, or it
 * failed. */
bool source_end_compared(struct source *s, struct source_file *f);
/* A file that was asked about is the same.  Lock held. */
void source_count_same(struct source *s, uint32_t id);
/* This lane is sending a SAME; no link to that file may go before the sink has it.  Lock held. */
void source_mark_same_sent(struct source_lane *l);
int source_check_totals(struct source *s);

#endif
