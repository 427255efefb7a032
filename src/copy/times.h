/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_TIMES_H
#define COPY_TIMES_H

/*
 * The time of an end's lanes, for the other end and for reports.
 *
 * A lane measures the time between its calls (lane.h).  The source and the sink know which part of
 * that was not spent on reading or writing.
 */

#include "base/cpu.h"
#include "session/session.h"

struct lane_use {
	/* ns_idle: the source had nothing to send until the peer answers; the sink waited for bytes
	 * that come first and had not arrived. */
	uint64_t ns_idle;
	uint64_t ns_spare; /* source: nothing to do, while other lanes were busy */
	uint64_t ns_paced; /* held back by --bwlimit */
	struct cpu_time cpu;
};

/* The kind of thing that fd is. */
enum stage_kind stage_kind_of(int fd);

/* Starts the report of this end's lanes; then add each lane. */
void times_begin(struct msg_times *m, const struct session *s, enum stage_kind kind);
void times_add(struct msg_times *m, const struct lane *l, const struct lane_use *use);

#endif
