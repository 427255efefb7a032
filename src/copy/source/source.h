/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_H
#define COPY_SOURCE_SOURCE_H

/*
 * The source's inside.  Each lane's thread takes one job after the other:
 *
 *	source.c          the run, and the threads
 *	source_pick.c     which job is next; source_lane.c: doing it
 *	source_large.c    files of several blocks, from the first piece to the last
 *	source_walk.c     going on with the walk (walk.h); what --delete must not touch
 *	source_tree.c     what the walk has found
 *	source_ask.c      files about which the sink is asked first, kept aside meanwhile
 *	source_small.c    files that are whole in one block: most of all files
 *	source_file.c     all other files and streams; source_piece.c: sending pieces of them
 *	source_other.c    symlinks, devices and hard links, when all files are done with
 *	source_record.c   blocks and records
 *	source_result.c   what the sink says of files; source_removal.c: removing stored ones
 *	source_seen.c     what was read, which all that comes later goes by
 *	source_ids.c, source_links.c, source_told.c: what is known of ids, hard links, and cells
 *	                  that the sink has
 *
 * Small files are claimed some at a time, read and packed into blocks without the copy's lock,
 * and made known to whoever hears results right before their block is sent.  A lane takes by turns
 * one piece of a large file and one block of small ones, so that neither has to wait for the
 * other.
 *
 * Why an ordered sink never waits for ever: pieces are claimed one after the other, those of one
 * file in order of position, and a lane sends what it has claimed before it claims again.  So of
 * all pieces that are not stored yet the one that was claimed first is at the head of its lane,
 * and its turn has come; what is whole in one block has its turn at once.
 *
 * Why questions never stop a run: no lane waits for an answer before it has sent all it has, and a
 * sink answers what a block asks as soon as it is at that block, which waits for nothing but an
 * ordered file's turn, and that for no answer.
 */

#include "base/table.h"
#include "base/worker.h"
#include "copy/attr/modes.h"
#include "copy/attr/owners.h"
#include "copy/attr/xattrs.h"
#include "copy/io/clone.h"
#include "copy/run.h"
#include "copy/source/source_file.h"
#include "copy/source/source_ids.h"
#include "copy/source/source_links.h"
#include "copy/source/source_run.h"
#include "copy/source/source_seen.h"
#include "copy/source/source_told.h"
#include "copy/times.h"
#include "copy/walk/find.h"
#include "copy/walk/walk.h"

enum {
	UNFINISHED_MAX = 128, /* files of several blocks whose result is not in */
	/* Bytes of a large file that take about as long as a small file.  Measured: 0.02 ms a file
	 * in memory and 0.05 on ext4, in which 64 and 50 KiB of a large one are stored. */
	SMALL_WEIGHT = 64 << 10,
	/* Bytes that are read of the oldest of several large files before the shortest has its
	 * turn, and the other way round: a few, lest a disk that has to seek does so all the time.
	 */
	LARGE_TURN = 8 << 20,
	SMALL_MAX = CELL, /* files up to this are whole in one block, if that has room */
	RESUME_MIN = 4 << 20, /* files from this on may be there in part, so the sink is asked */
	ASIDE_MAX = 4096, /* files kept aside, roughly */
	COMPARED_MAX = 1500, /* those of them, and again of those under way, that a sink that
			      * told their cells must remember: it does so of 4096 */
	QUEUE_LOW = 512, /* entries that wait; below, the walk goes on */
	TAKE_MAX = 32, /* entries that a lane takes at once */
	TOPS_MAX = 64, /* directories in none of which it is remembered that they may be new */
	OFFERED_MAX = 256, /* files offered to be cloned without an answer */
	CLONE_TRIES = 4, /* of which none was, and no more are offered */
	OWED_MS = 200, /* so long a lane waits for something else than its wire while not all that
			* it sent is known to be stored */
	SPARE_MAX = 31, /* blocks beside the one that is filled */
	DONE_MAX = 128, /* files that a lane has ended and not made known */
	/* Of a small file, beside its bytes and its attributes. */
	SMALL_ROOM = RECORD_FILE_MAX + RECORD_DATA_HEAD + RECORD_FILE_END_MAX - (TEXT_MAX - 1),
	END_ROOM = RECORD_FILE_END_MAX - (TEXT_MAX - 1), /* of a FILE_END without text */
};

/* ---- what waits ----------------------------------------------------------------------- */

/* A regular file that waits for its answer, or for somebody to take it up; not open. */
struct aside {
	struct aside *next;
	uint32_t id; /* 0: none yet, it was not asked about */
	uint32_t want, flags;
	struct walk_dir *dir; /* a reference; NULL: the target */
	uint8_t answer; /* 0: none yet */
	uint64_t size; /* as it was seen */
	uint64_t asked; /* a hash of the question; 0: not kept */
	bool may; /* it was only asked whether it may be replaced */
	struct link_group *group; /* which it leads; NULL: none */
	bool offered; /* to be cloned, as it was: */
	struct seen seen;
	struct known_cells *told; /* cells that the sink has; NULL: none */
	struct removal *removal; /* of an empty one; NULL: it is not to be removed */
	const char *path; /* of one that the user named, behind name; NULL */
	char name[];
};

/* Something else than a regular file or a directory, or one more name of a file. */
struct other {
	struct walk_dir *dir; /* a reference; NULL: the target */
	char *path; /* as the user named it; NULL: it is found in dir by its name */
	struct link_group *group; /* of the file that it is one more name of; NULL: none */
	uint32_t want;
	char name[NAME_ROOM];
};
/* The same, borrowed. */
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

/* A stored source that is to be removed. */
struct removal;

/*
 * Of an inode that lost a name to us.  To remove a name changes its ctime, so of one with several
 * names it is kept from which ctime to which nothing but that happened.
 */
struct unlinked {
	struct inode_key inode;
	struct timespec since, until;
};

/* ---- lanes ---------------------------------------------------------------------------- */

enum job {
	JOB_FAILED, /* the session did */
	JOB_OVER, /* nothing is left to do */
	JOB_WAIT, /* for something to change */
	JOB_FLUSH, /* send the records first */
	JOB_WALK, /* go on with it; source_end_walk_step() then */
	JOB_ENTRIES, /* of l->taken */
	JOB_ASIDES, /* of l->asides */
	JOB_OTHERS, /* of l->others */
	JOB_ANNOUNCE, /* send *file's FILE; source_release_file() then */
	JOB_READ, /* claim a piece of *file and send it; source_release_file() then */
};

struct source_entry {
	struct walk_piece *piece;
	enum walk_type type;
	const char *name;
};

/* A file that is whole in a block, or a question, not yet made known. */
struct source_done {
	uint32_t id;
	enum live kind;
	struct live_file file;
};

struct source_lane {
	struct source *source;
	struct lane *lane;
	unsigned index;
	struct block *block; /* lent; NULL */
	struct block *spare[SPARE_MAX]; /* lent too, for what is read at once, or later */
	unsigned spares;
	struct writer records; /* into block: records not sent yet */
	bool sent; /* a block of records was, since the last job was picked */
	bool owed; /* any block was, since all was known to be stored */
	bool paced; /* what is sent next was held back for --bwlimit already */
	uint64_t large_due; /* bytes of large files that come before the next small ones */
	struct lane_use use;
	struct digest *digest;
	uint8_t *scratch; /* a cell */
	struct sizes_of sizes;

	uint32_t next_id, end_id; /* that nobody else uses */
	struct source_entry taken[TAKE_MAX];
	unsigned taken_at, taken_count;
	struct aside *asides; /* taken */
	struct other others[TAKE_MAX];
	unsigned other_count;
	unsigned sames; /* in this block: files that were compared */
	uint64_t small_bytes; /* in this block, of small files; not in the tally yet */
	unsigned small_count; /* of them */
	struct source_done done[DONE_MAX];
	unsigned done_count;

	struct walk_dir *dir; /* whose descriptor is in use; a reference */
	int dirfd;
	struct {
		bool known;
		uint32_t id;
	} owner[2]; /* told last; groups are 1 */
	struct walk_dir *kept; /* whose names are in keep */
	struct writer keep;
	uint8_t keep_room[2048];
	struct msg_counts counts;

	/* The copy's lock: */
	bool busy; /* something may come of what it does */
	bool taking; /* more files may */
	bool same_owed; /* a SAME was put, since all was known to be stored */
};

/* Files that were offered to be cloned. */
struct clone_offers {
	atomic_uint open, refused; /* without an answer, and answered otherwise */
	atomic_bool taken; /* one was cloned */
};

/* Under the copy's lock, as all below: what the walk has found, and nobody has taken. */
struct walk_queue {
	bool walking, over;
	struct walk_piece *first, **end;
	uint32_t entries; /* of these */
};

/* Files that wait for an answer, or have it. */
struct asides {
	struct aside *ready[2], **ready_end[2]; /* with an answer; 1: large ones */
	unsigned count; /* these, and those without */
	unsigned max; /* roughly */
	unsigned sames_max; /* compared ones in a block */
	unsigned sames_owed; /* lanes of which a SAME may not be with the sink yet */
};

/* Files that are not whole in one block, begun and without a result. */
struct large_files {
	unsigned count;
	bool unsized; /* the size of one of them is not known */
	unsigned deaf; /* of these, failed at the peer, and perhaps blocked in read */
	struct source_file *open, **open_end; /* with bytes to claim, the oldest first */
	struct source_file *shortest; /* of them, when that turn began; NULL: not looked for */
	uint64_t shortest_turn;
	atomic_bool is_open; /* there is one; for those without the lock */
	_Atomic uint64_t claimed; /* bytes of them so far */
};

/* Stored sources that are to be removed. */
struct removals {
	struct removal *due, **due_end; /* now */
	struct removal *linked; /* when all names are met */
	struct removal *same; /* unless a failure of theirs comes before DONE */
	struct table unlinked; /* by inode: main's, without the lock */
};

struct source {
	struct copy *copy;
	struct session *session;
	const struct source_opts *o;
	const struct rules *rules;
	struct rules plain;
	struct found found;
	struct walk *walk; /* used by who has walking */
	struct owners *owners; /* NULL: they are not told */
	struct modes *modes;
	uint64_t small_max; /* bytes of a file that is whole in one block */
	atomic_size_t told_bytes; /* kept of what the sink told */
	struct clone_offers clones;
	atomic_bool direct_missed; /* that a file can't be read so was told */
	enum stage_kind kind; /* of what is read */
	bool only; /* one file or stream was asked for */
	bool asks; /* about large files; all: */
	bool asks_all;
	bool removes; /* what the sink has in the end */

	/* The copy's lock: */
	struct walk_queue walked;
	struct asides asides;
	struct others others, hard_links;
	unsigned phase; /* 0: files; 1: others; 2: hard links */
	unsigned busy, taking; /* lanes that are */
	unsigned working; /* lanes' threads */
	uint64_t unfinished; /* files begun without a result */
	struct large_files large;
	struct ids ids;
	struct links links;
	struct removals removals;
	struct walk_dir *named_dir; /* of the file named last */
	struct walk_dir *tops[TOPS_MAX]; /* references to the first ones that are in no other */
	unsigned top_count;
	struct msg_total ended; /* what FILE_END, DIR and SAME records say, and answers */
	struct msg_total agreed; /* what results say */

	struct source_lane lanes[LANE_COUNT_MAX];
	struct worker workers[LANE_COUNT_MAX];
};

/* A regular file or stream on its way to the sink. */
struct source_item {
	struct walk_dir *dir; /* NULL: the target */
	const char *name; /* there */
	const char *path; /* as the user named it; NULL: it is found in dir by its name */
	uint32_t want, id, flags;
	bool missing;
	bool linked; /* it was looked at whether another name of it went before */
	bool permitted; /* the sink said that it may be replaced */
	bool counted; /* as a regular file */
	bool measured; /* its size is known from reading it, and its bytes are the lane's */
	struct link_group *group; /* which it leads; NULL: none */
	struct aside *aside; /* its answer came; NULL: it was not asked about */
	int fd;
	/* What is sent, checked, removed and linked goes by this: of the name while it is only
	 * asked about, of the descriptor as soon as that is open. */
	struct stat st;
	uint64_t size; /* st's, unless that means nothing */
};

/* The thread of one lane. */
void *source_lane_run(void *lane);

/* ---- source_pick.c -------------------------------------------------------------------- */

enum job source_pick(struct source_lane *l, struct source_file **file);
/* A step of the walk was made; over: the last one. */
void source_end_walk_step(struct source *s, bool over);

/* ---- source_large.c ------------------------------------------------------------------- */

/* Nothing of it is left to claim; why: it failed (this thread's failure). */
void source_exhaust_file(struct source *s, struct source_file *f, bool why);
/* A lane is done with its piece; true: it was the last one, and makes the FILE_END. */
bool source_release_file(struct source *s, struct source_file *f, uint64_t data, uint64_t holes,
			 const uint64_t sum[2]);
/* It was compared, and differs: send it. Nobody else has it. Lock held. */
void source_requeue_file(struct source *s, struct source_file *f);
/* Give f an id, unless it has one, and let all lanes take pieces of it.  Takes f, freed if that
 * fails. */
int source_add_file(struct source_lane *l, struct source_file *f);

/* ---- source_record.c ------------------------------------------------------------------ */

/* An id for what this lane sends. */
int source_take_id(struct source_lane *l, uint32_t *id);
/* It was not needed: it was the last one that this lane took. */
void source_return_id(struct source_lane *l, uint32_t id);
int source_get_block(struct source_lane *l);
/* The same, and as many more as are free, up to so many bytes in all: how many there are. */
int source_get_blocks(struct source_lane *l, uint64_t bytes, unsigned *count);
/* Hold back what is sent next, of so many bytes, for --bwlimit; else source_send() does. */
int source_pace(struct source_lane *l, uint32_t len);
int source_send(struct source_lane *l, enum block_kind kind, uint32_t file, uint64_t pos,
		uint32_t len);
int source_send_records(struct source_lane *l);
/* Make sure that so many bytes of records fit. */
int source_reserve_room(struct source_lane *l, size_t len);
/* d (NULL: nothing), those above it, and their owners, unless this lane did. */
int source_put_dir(struct source_lane *l, struct walk_dir *d);
/* What a source that the user named is; in: the directory that it will be in at the sink, NULL: the
 * target; name: there.  Before its first record on each lane. */
int source_put_origin(struct source_lane *l, uint32_t want, struct walk_dir *in, const char *name,
		      const struct stat *st);
/* Owners of a, and of what x names. */
int source_put_owners(struct source_lane *l, const struct record_attr *a, const struct xattrs *x);
int source_put_xattrs(struct source_lane *l, uint32_t id, const struct xattrs *x);
/* At most so many bytes, in one block. */
size_t source_xattrs_room(const struct xattrs *x, uint32_t id);
/* Remember a file that is whole in a block, or a question, until its block is sent. */
void source_queue_done(struct source_lane *l, const struct source_done *d);
/* Make them known, as is also done before the block goes. Lock held. */
void source_publish_locked(struct source_lane *l);

/* ---- source_tree.c -------------------------------------------------------------------- */

int source_send_entries(struct source_lane *l);
/* Its descriptor, in l->dirfd, until another one is used; NULL: none. */
int source_use_dir(struct source_lane *l, struct walk_dir *d);
/* This thread's failure is that of name in d, or of what the user named path.  -1: it is the
 * session's. */
int source_report_failed(struct source_lane *l, enum event_what what, struct walk_dir *d,
			 const char *name, const char *path);
/* on_event(), if events are wanted: of a failure. Lock not held. */
void source_report_event(struct source *s, enum event_what what, struct walk_dir *d,
			 const char *name, const struct failure *why);
const char *item_shown(const struct source_item *it, char *to, size_t size);
int item_open(struct source_lane *l, struct source_item *it);
/* What has just been found, by its name and path: look at it, and consider it. */
int item_take(struct source_lane *l, struct source_item *it);
/* Send it, if it is to be sent; the same, when it is known to be and open. */
int item_consider(struct source_lane *l, struct source_item *it);
int item_send(struct source_lane *l, struct source_item *it);
int item_report_failed(struct source_lane *l, struct source_item *it);
void item_close(struct source_item *it);
/* What the sink is told of it, but for the id. */
void item_record(const struct source_lane *l, const struct source_item *it, struct record_file *r);
/* Remember what to remove when it is stored. */
int item_removal(struct source_lane *l, const struct source_item *it, struct removal **out);

/* ---- source_small.c ------------------------------------------------------------------- */

bool item_is_small(const struct source_lane *l, const struct source_item *it);
int item_send_small(struct source_lane *l, struct source_item *it);

/* ---- source_ask.c --------------------------------------------------------------------- */

/* Ask about it, and keep it aside. */
int source_ask(struct source_lane *l, struct source_item *it);
/* May the sink share with it what is on the disk? */
bool source_may_clone(const struct source *s, const struct source_item *it);
/* The sink's answers, and the cells that it has: 0, or -1 with the session's failure.  Control
 * thread, lock held. */
int source_take_answers(struct source *s, const struct msg_answers *m);
int source_take_cells(struct source *s, const struct msg_cells *m);
/* What was offered is answered, or has failed. */
void source_end_offer(struct source *s, struct aside *a);
/* Ask only whether it may be replaced, and keep it aside. */
int source_ask_permission(struct source_lane *l, struct source_item *it);
/* Is what may be there not to be replaced, whatever else is to be done? */
bool source_needs_permission(const struct source *s);
/* Is it the rules' word that files in d are asked about? NULL: the target. */
bool source_asks_all(const struct source *s, struct walk_dir *d);
/* Keep it aside, unasked, until there is room for one more large file. */
int source_park(struct source_lane *l, struct source_item *it);
int source_send_asides(struct source_lane *l);
void aside_free(struct aside *a);
/* Was it asked about as it is now? */
bool aside_is_current(const struct source_lane *l, const struct source_item *it);

/* ---- source_piece.c ------------------------------------------------------------------- */

int source_read(struct source_lane *l, struct source_file *f);
int source_announce(struct source_lane *l, struct source_file *f);

/* ---- source_other.c ------------------------------------------------------------------- */

/* Lock held. */
int others_add(struct others *t, const struct new_other *o);
unsigned others_take(struct others *t, struct other *to, unsigned most);
void other_drop(struct other *o);
void others_free(struct others *t);
int source_send_others(struct source_lane *l);

/* ---- source_walk.c -------------------------------------------------------------------- */

int source_walk(struct source_lane *l);

/* ---- source_removal.c ----------------------------------------------------------------- */

/* name in dir, or (dir NULL) what the user named path; seen: what was read. Lock not held. */
int removal_new(struct source *s, struct walk_dir *dir, const char *name, const struct seen *seen,
		struct removal **out);
void removal_free(struct removal *r); /* NULL: nothing */
/* It may go now; NULL: nothing.  Lock held. */
void removal_queue(struct source *s, struct removal *r);
/* It was compared, and is the same: a result of it comes only if that fails.  NULL: nothing.
 * Lock held. */
void removal_hold_same(struct source *s, uint32_t id, struct removal *r);
/* No more results come: what is the same, and did not fail, is due. Lock held. */
void removals_queue_same(struct source *s);
/* The phase is not 0 any more. */
void removals_queue_linked(struct source *s);
/* Do the first one.  Lock held, and left for the time of it. */
void removals_do_next(struct source *s);
void removals_free(struct source *s);

/* ---- source_result.c ------------------------------------------------------------------ */

/* Fill in its FILE_END and let go of it, until its result comes. */
void source_end_file(struct source *s, struct source_file *f, struct record_file_end *r);
/* It was compared: true if it is the same, and done with.  Else it is to be sent, or failed. */
bool source_end_compared(struct source *s, struct source_file *f);
/* A file that was asked about is the same. Lock held. */
void source_count_same(struct source *s, uint32_t id);
/* This lane says SAME of it: no link to it goes before the sink has heard that. Lock held. */
void source_owe_same(struct source_lane *l);
int source_check_totals(struct source *s);

#endif
