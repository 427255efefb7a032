/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_ORDERS_H
#define CMD_END_ORDERS_H

/*
 * Receives the orders of a conductor to an end: START and all frames up to GO, in the form that
 * source and sink use.
 */

#include "copy/names/taken.h"
#include "copy/sink/sink.h"
#include "copy/source/source.h"
#include "protocol/message.h"

struct orders {
	struct msg_start m;
	char **wants; /* the SRCs */
	unsigned want_count;

	/* private */
	size_t want_room, want_bytes, rule_bytes, listed_bytes, taken_bytes;
	unsigned rule_count;
	struct filter *filter;
	struct files_from *listed;
	struct taken taken;
	struct rules rules;
};

/* Handles START. Returns 0, or -1 with a failure. */
int orders_begin(struct orders *o, const struct frame *f);
/* Handles a frame after START. Returns 1 if it was GO and the orders are complete; 0; -1 with a
 * failure. */
int orders_take(struct orders *o, const struct frame *f);
/* For an end without a conductor, with only a START: the caller has filled in o->m. */
void orders_settle(struct orders *o);
void orders_free(struct orders *o);
/* Of the names and patterns received so far. */
size_t orders_bytes(const struct orders *o);

static inline bool orders_have(const struct orders *o, uint64_t start_flag)
{
	return o->m.flags & start_flag;
}
/* Hashes may be left out only if the source generates the data and the sink discards it. */
static inline bool orders_unchecked(const struct orders *o)
{
	return orders_have(o, START_UNCHECKED) && orders_have(o, START_MEMORY);
}
/* Both results borrow from o. */
struct source_opts orders_source_opts(const struct orders *o);
struct sink_opts orders_sink_opts(const struct orders *o);

#endif
