/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_HELLO_H
#define LANE_HELLO_H

/*
 * What the two ends of a new wire say to each other first, on any backend.  accepting says
 * whose hello it is: of the end that connected, or of the one that accepted.
 */

#include "lane/head.h"

/* This lane's own.  A ring (head.h) is told over verbs only; elsewhere none is taken. */
void hello_write(const struct lane *l, uint32_t epoch, bool accepting, const struct lane_key *key,
		 uint8_t to[static LANE_HELLO_SIZE]);

/* The other end's: 0 when it has the session's secret and means this lane, epoch and sizes, from
 * the other side; else -1, OUT_AUTH or OUT_PROTOCOL. */
int hello_check(const struct lane *l, uint32_t epoch, bool accepting, const struct lane_key *key,
		const uint8_t from[static LANE_HELLO_SIZE]);

void hello_write_ring(const struct lane *l, uint32_t epoch, bool accepting,
		      const struct lane_key *key, const struct lane_ring *ring,
		      uint8_t to[static LANE_HELLO_SIZE]);
int hello_check_ring(const struct lane *l, uint32_t epoch, bool accepting,
		     const struct lane_key *key, const uint8_t from[static LANE_HELLO_SIZE],
		     struct lane_ring *ring);

#endif
