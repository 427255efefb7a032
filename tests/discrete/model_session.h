/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISCRETE_MODEL_SESSION_H
#define DISCRETE_MODEL_SESSION_H

/*
 * The lanes of one session in virtual time, and what session/mend does for them: LANE_DOWN,
 * LANE_STORED and LANE_CHECK take the link's latency each, and a connection takes two round trips,
 * one for the connection manager and one for the hellos. Every lane has a core of its own.
 */

#include <stdbool.h>
#include <stdint.h>
#include "base/fail.h"
#include "model_wire.h"

struct transfer {
	struct link_model link;
	unsigned lanes;
	uint32_t depth, block_size;
	uint64_t blocks; /* to move, over all lanes */
	uint64_t pauses_at, pause_ps; /* the sink stores this block of lane 0 so much longer */
	int timeout_ms;

	/* In this lane each block takes the sink so many times as long to store. */
	unsigned slow_lane;
	double slow_factor;

	/* Lane 0 loses so many of its connections, one after the other. */
	struct wire_loss loss;
	unsigned losses;
};

struct transfer_result {
	uint64_t *stored_ps; /* when the n-th block was stored, over all lanes */
	uint64_t end_ps; /* when the last lane was flushed */
	uint64_t credits; /* messages */
	uint64_t resent;
	uint32_t epochs; /* wires used */
	uint64_t by_lane[LANE_COUNT_MAX]; /* blocks stored */
	uint64_t paused_ps; /* how long lane 0 stored nothing after its last loss; 0: no loss */
	bool failed;
	char why[FAIL_TEXT_MAX + 16]; /* if it failed */
};

void transfer_run(const struct transfer *t, struct transfer_result *r);
void transfer_result_free(struct transfer_result *r);

#endif
