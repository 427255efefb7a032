/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_IO_DIGEST_H
#define COPY_IO_DIGEST_H

/*
 * The digest of a file or stream: the sum modulo 2^128 of XXH3-128 of each cell of CELL bytes,
 * seeded with the cell's offset.  Cells may come in any order and on any lane; the result does
 * not depend on the block size.  Cells that lie wholly in a hole count as nothing.  It detects
 * faults, not attackers.
 *
 * A digest is used by one thread at a time; sum_add() adds up what several found.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lane/cells.h"
#include "lane/lane.h"

struct digest; /* running: sum, and the cell in the middle of which it is */
struct digest *digest_new(void);
void digest_free(struct digest *d);
void digest_reset(struct digest *d);
/* Bytes at pos.  Within a cell in order, from its start to its end (or the end of the file);
 * cells in any order. A new cell ends the one before. */
void digest_add(struct digest *d, uint64_t pos, const void *bytes, size_t len);
/* The same for a block that was sealed, or has come; last: the file ends with it.  One of whole
 * cells, the file's last one too, has been hashed already and is not hashed again. */
void digest_add_block(struct digest *d, const struct block *b, bool last);
/* The sum, with the last cell ended. */
void digest_sum(struct digest *d, uint64_t out[2]);
/*
 * From now on sum up cells that are not all zero as well.  Of a file that was stored that is all
 * that can be known: a cell of zeros may be a hole.  digest_solid(): after digest_sum().
 */
void digest_watch(struct digest *d);
void digest_solid(const struct digest *d, uint64_t out[2]);
bool bytes_are_zero(const void *bytes, size_t len);

#endif
