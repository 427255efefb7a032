/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_HELLO_H
#define LANE_HELLO_H

/*
 * The first exchange of the two ends of a new wire, on any transport. accepting says whose hello it
 * is: true for the end that accepted, false for the end that connected.
 */

#include "lane/head.h"

/* What the other end states about the wire. */
struct hello_terms {
	uint32_t depth;
	bool seals; /* it demands encrypted blocks */
};

/* This lane's own hello. Only verbs sends and accepts a ring (head.h). */
void hello_write(const struct lane *l, uint32_t epoch, bool accepting, const struct lane_key *key,
		 uint8_t to[static LANE_HELLO_SIZE]);

/* Checks the other end's hello. Returns 0 if that end has the session's secret and names the key's
 * session, this lane, epoch and block size, a depth of at most the lane's, and the other side; else
 * -1 with OUT_AUTH or OUT_PROTOCOL. *terms: what it states, for struct wire. */
int hello_check(const struct lane *l, uint32_t epoch, bool accepting, const struct lane_key *key,
		const uint8_t from[static LANE_HELLO_SIZE], struct hello_terms *terms);

void hello_write_ring(const struct lane *l, uint32_t epoch, bool accepting,
		      const struct lane_key *key, const struct lane_ring *ring,
		      uint8_t to[static LANE_HELLO_SIZE]);
int hello_check_ring(const struct lane *l, uint32_t epoch, bool accepting,
		     const struct lane_key *key, const uint8_t from[static LANE_HELLO_SIZE],
		     struct lane_ring *ring, struct hello_terms *terms);

#endif
