/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISCRETE_STAGE_H
#define DISCRETE_STAGE_H

/* What a lane's thread spends its time on: how much each stage costs, and how much was spent. */

#include <stdbool.h>
#include <stdint.h>
#include "lane/lane.h"

enum stage {
	STAGE_FILL, /* source: get the bytes of a block, as by read(2) */
	STAGE_STORE, /* sink: store the bytes of a block, as by write(2) */
	STAGE_DIGEST, /* hash a block */
	STAGE_LANE, /* the other work of lane and session on a block */
	STAGE_POST, /* post one send or receive */
	STAGE_COMPLETION, /* take one completion */
	STAGE_CREDIT, /* encode or decode a credit, besides its post and its completion */
	STAGE_WAKE, /* from the completion until a thread that sleeps runs */
	STAGE_REGISTER, /* register memory, for each wire */
	STAGE_COUNT,
};

struct cost {
	uint64_t call_ps; /* each time */
	double byte_ps; /* for each byte */
};

extern struct cost costs[LANE_SINK + 1][STAGE_COUNT]; /* by side */
/* A thread that waits for less time than this polls, and needs no waking. */
extern uint64_t spin_ps;

const char *stage_name(enum stage s);
/* "digest=120,0.025": nanoseconds for each call, and for each byte. "sink.digest=120,0.025": at
 * this end only. Returns false if it is neither a stage nor a cost. */
bool stage_parse(const char *word);

/* The calling task of this side is busy with the stage, factor times as long as usual. */
void stage_spend(enum lane_side side, enum stage s, uint64_t bytes, double factor);
/* The same for a task that will wait by itself; returns the time. */
uint64_t stage_charge(enum lane_side side, enum stage s, uint64_t bytes, double factor);
/* The time that all tasks of a side have spent. */
uint64_t stage_spent_ps(enum lane_side side, enum stage s);
/* The calling task is of this side: for code that cannot pass it on. */
void stage_enter(enum lane_side side);

#endif
