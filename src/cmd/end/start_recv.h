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

struct errand {
	struct msg_start start;
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
int errand_start(struct errand *e, const struct frame *f);
/* Something else: 1 when it was GO, and all is known; 0; -1 with a failure. */
int errand_take(struct errand *e, const struct frame *f);
void errand_free(struct errand *e);

static inline bool errand_has(const struct errand *e, uint64_t start_flag)
{
	return e->start.flags & start_flag;
}
/* Only what is made here, and thrown away there, may go unchecked. */
static inline bool errand_unchecked(const struct errand *e)
{
	return errand_has(e, START_UNCHECKED) && errand_has(e, START_MEMORY);
}
/* Both borrow from e. */
struct source_opts errand_source(const struct errand *e);
struct sink_opts errand_sink(const struct errand *e);

#endif
