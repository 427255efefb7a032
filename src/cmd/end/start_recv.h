/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_START_RECV_H
#define CMD_END_START_RECV_H

/*
 * What a conductor told an end to do: START, and what follows it up to GO, as source and sink
 * take it.
 */

#include "copy/names/taken.h"
#include "copy/sink/sink_run.h"
#include "copy/source/source_run.h"
#include "protocol/message.h"

struct start {
	struct msg_start m;
	char **wants; /* SRCs */
	unsigned want_count;

	/* its own */
	size_t want_room, want_bytes, rule_bytes, listed_bytes;
	unsigned rule_count;
	struct filter *filter;
	struct listed *listed;
	struct taken taken;
	struct rules rules;
};

/* START came. 0, or -1 with a failure. */
int start_begin(struct start *e, const struct frame *f);
/* Something else: 1 when it was GO, and all is known; 0; -1 with a failure. */
int start_take(struct start *e, const struct frame *f);
/* START is all there is: the caller has filled in e->m. */
void start_settle(struct start *e);
void start_free(struct start *e);

static inline bool start_has(const struct start *e, uint64_t start_flag)
{
	return e->m.flags & start_flag;
}
/* Only what is made here, and thrown away there, may go unchecked. */
static inline bool start_unchecked(const struct start *e)
{
	return start_has(e, START_UNCHECKED) && start_has(e, START_MEMORY);
}
/* Both borrow from e. */
struct source_opts start_source(const struct start *e);
struct sink_opts start_sink(const struct start *e);

#endif
