/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_COMPRESS_CHOICE_H
#define LANE_COMPRESS_CHOICE_H

/*
 * Decides for each block of a lane whether to compress it.
 *
 * With COMPRESS_AUTO that is so while it makes the lane faster. A lane that waits for its wire
 * gains what the shorter block saves of the wait. A lane that compresses and never waits is as fast
 * as its processor: now and then it sends some blocks as they are, and goes on with what took less
 * time. While it does not compress, it tries a block so rarely that this takes less than 1 % of a
 * processor: by processor time, or one try that others interrupted would put off the next for long.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/compress.h"

struct compress_choice {
	enum compress_mode mode;
	enum { CHOICE_ON, CHOICE_PROBE, CHOICE_OFF } state;
	uint32_t probe_left; /* PROBE: blocks to send as they are */
	uint64_t last_ns; /* when the last block began */
	uint64_t next_ns; /* ON: when to probe; OFF: when to try a block */
	uint64_t patience_ns; /* ON: from one probe to the next */
	/* Averages, in nanoseconds for a byte before compression. */
	double wait; /* for the wire, of the blocks of this state */
	double cycle_on, cycle_probe; /* from one block to the next */
};

void choice_begin(struct compress_choice *c, enum compress_mode mode);
/* The next block of len bytes begins. waited_ns: for the wire, since the last one. window: blocks
 * that may be in flight. Returns whether to compress it. */
bool choice_tries(struct compress_choice *c, uint64_t now_ns, uint32_t len, uint64_t waited_ns,
		  uint32_t window);
/* A block was compressed from len to packed bytes (0: it did not shrink) in spent_ns, of which
 * worked_ns were processor time. */
void choice_learns(struct compress_choice *c, uint64_t now_ns, uint32_t len, uint32_t packed,
		   uint64_t spent_ns, uint64_t worked_ns);

#endif
