/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_CELL_HASH_H
#define LANE_CELL_HASH_H

/*
 * Files are hashed in cells of CELL bytes, counted from the file's start. The hash of a range of
 * bytes is a sum modulo 2^128: one XXH3-128 for each part of the range that lies in one cell,
 * seeded with the part's position. So the hash of a block that consists of whole cells is also its
 * share of the file's digest (copy/io/digest.h). The hash detects faults, not attackers.
 */

#include <stddef.h>
#include <stdint.h>

enum { CELL = 256 << 10 };

/* The hash of len bytes at pos, low half first. That of no bytes is XXH3-128 of an empty input,
 * seeded with pos. */
void cell_hash_of(uint64_t pos, const void *bytes, size_t len, uint64_t out[static 2]);
void sum_add(uint64_t to[static 2], const uint64_t from[static 2]);

#endif
