/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_H
#define COPY_SOURCE_H

/*
 * The source's inside: source.c hands out work and hears results, source_lane.c is what one
 * lane's thread does with it.
 *
 * Why an ordered sink never waits for ever: pieces are claimed in one order of all lanes, a lane
 * sends what it has claimed before it claims again, and a file's pieces are all claimed before
 * the next file's.  So the oldest piece that is not stored yet is at the head of its lane, and
 * its turn has come.
 */

#include "base/worker.h"
#include "copy/find.h"
#include "copy/run.h"
#include "copy/source_file.h"

enum {
	RESULT_BUCKETS = 1024,
	UNFINISHED_MAX = 128, /* files of several blocks whose result is not in */
	SMALL_MAX = 256 << 10, /* files up to this are whole in one block, if that has room */
};

struct source_lane {
	struct source *source;
	struct lane *lane;
	unsigned index;
	struct block *block; /* lent; NULL */
	struct writer records; /* into block: records not sent yet */
	struct digest *digest;
	uint8_t *scratch; /* for a small file */
};

struct source {
	struct copy *copy;
	struct session *session;
	const struct source_opts *o;
	struct found found;
	bool only; /* one file or stream was asked for */

	/* The copy's lock: */
	unsigned next; /* of found, to be opened */
	unsigned opening; /* lanes that open one now */
	unsigned working; /* lanes' threads at work */
	unsigned unfinished; /* files begun without a result */
	unsigned large; /* of these, those not whole in one block */
	bool unsized; /* the size of one of them is not known */
	unsigned deaf; /* of these, failed at the peer, and perhaps blocked in read */
	uint32_t last_id;
	struct source_file *open, **open_end; /* with bytes to claim */
	struct source_file *live[RESULT_BUCKETS];
	struct source_file *stored, **stored_end; /* to be unlinked */
	struct source_dir *dir; /* of the file opened last */
	struct msg_total ended; /* what FILE_END records say */
	struct msg_total agreed; /* what results say */

	struct source_lane lanes[LANE_COUNT_MAX];
	struct worker workers[LANE_COUNT_MAX];
};

/* The thread of one lane. */
void *source_lane_run(void *lane);

enum job {
	JOB_FAILED, /* the session did */
	JOB_OVER, /* nothing is left to do */
	JOB_FLUSH, /* send the records first */
	JOB_OPEN, /* open found.paths[*index] */
	JOB_ANNOUNCE, /* send *file's FILE; source_leave() then */
	JOB_READ, /* claim a piece of *file and send it; source_leave() then */
};
enum job source_pick(struct source_lane *l, struct source_file **file, unsigned *index);
/* What JOB_OPEN found: give it an id (small: to be sent whole, by this lane), or why not.
 * -1: the session fails with it. */
void source_number(struct source_lane *l, struct source_file *f, bool small);
/* Remember where it is to be unlinked, if it is. */
int source_hold(struct source *s, struct source_file *f);
/* Free one that has no id yet. */
void source_drop(struct source *s, struct source_file *f);
int source_open_failed(struct source *s, const char *path);
/* Nothing of it is left to claim; why: it failed (this thread's failure). */
void source_exhaust(struct source *s, struct source_file *f, bool why);
/* A lane is done with its piece; true: it was the last one, and makes the FILE_END. */
bool source_leave(struct source *s, struct source_file *f, uint64_t data, uint64_t holes,
		  const uint64_t sum[2]);
/* Fill in its FILE_END and let go of it, until its result comes. */
void source_end(struct source *s, struct source_file *f, struct record_file_end *r);

#endif
