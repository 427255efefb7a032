/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_START_RECV_H
#define CMD_END_START_RECV_H

/*
 * Receives the orders of a conductor to an end: START and all frames up to GO, in the form that
 * source and sink use.
 */

#include "copy/names/taken.h"
#include "copy/sink/sink_run.h"
#include "copy/source/source_run.h"
#include "protocol/message.h"

struct start {
	struct msg_start m;
	char **wants; /* the SRCs */
	unsigned want_count;

	/* private */
	size_t want_room, want_bytes, rule_bytes, listed_bytes;
	unsigned rule_count;
	struct filter *filter;
	struct listed *listed;
	struct taken taken;
	struct rules rules;
};

/* Handles START. Returns 0, or -1 with a failure. */
int start_begin(struct start *e, const struct frame *f);
/* Handles a frame after START. Returns 1 if it was GO and the orders are complete; 0; -1 with a
 * failure. */
int start_take(struct start *e, const struct frame *f);
/* For an end without a conductor, with only a START: the caller has filled in e->m. */
void start_settle(struct start *e);
void start_free(struct start *e);

static inline bool start_has(const struct start *e, uint64_t start_flag)
{
	return e->m.flags & start_flag;
}
/* Hashes may be left out only if the source generates the data and the sink discards it. */
static inline bool start_unchecked(const struct start *e)
{
	return start_has(e, START_UNCHECKED) && start_has(e, START_MEMORY);
}
/* Both results borrow from e. */
struct source_opts start_source(const struct start *e);
struct sink_opts start_sink(const struct start *e);

#endif
