/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_TIMES_H
#define COPY_TIMES_H

/*
 * What an end's lanes did with their time, told to the other end and to whoever reports.
 *
 * A lane counts what lies between its calls (lane.h); of that, source and sink know which part
 * was not spent at what is read or written.
 */

#include "base/cpu.h"
#include "session/session.h"

struct lane_use {
	uint64_t ns_idle; /* source: had nothing to send before the peer answers; sink: its turn
			   * was not to come before another block */
	uint64_t ns_spare; /* source: had nothing to do while other lanes had */
	uint64_t ns_paced; /* held back by --bwlimit */
	struct cpu_time cpu;
};

/* What a descriptor is read from or written to. */
enum stage_kind stage_kind_of(int fd);

/* Begin to count what this end's lanes did, then add each of them. */
void times_begin(struct msg_times *m, const struct session *s, enum stage_kind kind);
void times_add(struct msg_times *m, const struct lane *l, const struct lane_use *use);

#endif
