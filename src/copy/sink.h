/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SINK_H
#define COPY_SINK_H

/*
 * The sink's inside: sink.c hears what comes and who must wait, sink_file.c stores and
 * finishes a file.
 */

#include "base/worker.h"
#include "copy/digest.h"
#include "copy/outlet.h"
#include "copy/place.h"
#include "copy/run.h"

enum { SINK_OPEN_MAX = 256, SINK_BUCKETS = 64 };

enum sink_state {
	SINK_OPENING,
	SINK_OPEN,
	SINK_FAILED, /* its bytes are taken and dropped */
};

struct sink_file {
	struct sink_file *next;
	struct record_file r;
	struct placement *placement; /* NULL: the stream's descriptor */
	struct outlet out;
	bool ordered; /* stored in order of pos */
	struct digest *digest; /* of an ordered one; whose turn it is uses it */

	/* The copy's lock: */
	enum sink_state state;
	uint64_t announced; /* lanes that FILE came on, a bit for each */
	uint64_t turn; /* ordered: up to here all is stored, */
	bool taken; /* and somebody stores what comes next */
	uint64_t data, holes; /* that came */
	uint64_t sum[2];
	unsigned busy; /* lanes that store a piece */
	bool ended;
	struct record_file_end end;
	struct failure failure;
	bool told; /* the result is on its way */
};

struct sink_lane {
	struct sink *sink;
	struct lane *lane;
	unsigned index;
	struct digest *digest; /* of the cell that is coming in */
	uint32_t digest_of; /* which file's */
	pthread_cond_t turn; /* signalled when what it waits for may have come */
	const struct sink_file *waits;
};

struct sink {
	struct copy *copy;
	struct session *session;
	const struct sink_opts *o;
	struct place *place; /* NULL: the stream's descriptor */

	/* The copy's lock: */
	bool stream_taken;
	struct sink_file *files[SINK_BUCKETS];
	unsigned count;
	struct msg_total ended; /* what FILE_END records said */
	struct msg_total stored; /* what is */

	struct sink_lane lanes[LANE_COUNT_MAX];
	struct worker workers[LANE_COUNT_MAX];
};

/* A piece of a file: bytes (block: those of a whole block), or a hole, bytes NULL. */
struct piece {
	uint32_t id;
	uint64_t pos, len;
	const uint8_t *bytes;
	const struct block *block;
};

/* What came on this lane; -1: the session fails with it. */
int sink_take_file(struct sink_lane *l, const struct record_file *r);
int sink_take_piece(struct sink_lane *l, const struct piece *p);
int sink_take_end(struct sink_lane *l, const struct record_file_end *r);
/* Drop all that are not finished; keep: for a later run. */
void sink_drop_all(struct sink *s, bool keep);

#endif
