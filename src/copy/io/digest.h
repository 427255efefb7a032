/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_DIGEST_H
#define COPY_IO_DIGEST_H

/*
 * The digest of a file or stream: the sum modulo 2^128 of the XXH3-128 of each cell of CELL bytes,
 * seeded with the cell's offset.  Cells may come in any order and on any lane.  The result does not
 * depend on the block size.  Cells that lie entirely in a hole are not counted.  It detects faults,
 * not attackers.
 *
 * One thread at a time uses a digest; sum_add() adds up the sums of several.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lane/cell_hash.h"
#include "lane/lane.h"

struct digest; /* in progress: the sum, and the cell that is not complete yet */
struct digest *digest_new(void);
void digest_free(struct digest *d);
void digest_reset(struct digest *d);
/* Adds bytes at pos.  Bytes within a cell must come in order, from its start to its end or the end
 * of the file; cells may come in any order.  A new cell ends the previous one. */
void digest_add(struct digest *d, uint64_t pos, const void *bytes, size_t len);
/* As digest_add(), for a block that was sealed or has arrived.  last: the file ends with it.  A
 * block of whole cells, including the file's last one, has its hash already, which is used. */
void digest_add_block(struct digest *d, const struct block *b, bool last);
/* Ends the last cell, and returns the sum. */
void digest_sum(struct digest *d, uint64_t out[2]);
/*
 * From now on also sums the cells that are not all zero.  Of a stored file only these can be known,
 * because a cell of zeros may be a hole.  digest_nonzero_sum() returns that sum; call digest_sum()
 * first.
 */
void digest_track_nonzero(struct digest *d);
void digest_nonzero_sum(const struct digest *d, uint64_t out[2]);
bool bytes_are_zero(const void *bytes, size_t len);

#endif
