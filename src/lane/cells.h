/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_CELLS_H
#define LANE_CELLS_H

/*
 * What bytes of a file are hashed as: cells of CELL bytes, counted from its start.  The hash of
 * bytes at a position is the sum modulo 2^128 of XXH3-128 of each part of them that lies in one
 * cell, seeded with the part's position.  So a block's hash is also its share of the file's
 * digest (copy/io/digest.h) if it is of whole cells.  It detects faults, not attackers.
 */

#include <stddef.h>
#include <stdint.h>

enum { CELL = 256 << 10 };

/* Low half first.  No bytes hash as XXH3-128 of none, seeded with pos. */
void cells_hash(uint64_t pos, const void *bytes, size_t len, uint64_t out[static 2]);
void sum_add(uint64_t to[static 2], const uint64_t from[static 2]);

#endif
