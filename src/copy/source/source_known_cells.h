/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_KNOWN_CELLS_H
#define COPY_SOURCE_SOURCE_KNOWN_CELLS_H

/* The digests of the cells of a file that the sink has.  They are added with the copy's lock held;
 * after that the file's threads read them. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "protocol/message.h"

enum { KNOWN_CELLS_BYTES_MAX = 256 << 20 /* of all files; these are the cells of some 4 TiB */ };

struct known_cells;
/* Adds the digests of m, for a file of this size; allocates *c at first.  -1, OUT_PROTOCOL: cells
 * do not ascend, or lie behind the end.  total_bytes: counts what is kept of all files; beyond
 * KNOWN_CELLS_BYTES_MAX nothing is kept. */
int known_cells_add(struct known_cells **c, const struct msg_cells *m, uint64_t size,
		    atomic_size_t *total_bytes);
/* Was something dropped because of that limit? */
bool known_cells_is_cut(const struct known_cells *c);
void known_cells_free(struct known_cells *c); /* accepts NULL */
/* The digest of the cell at pos; NULL: the sink sent none.  c may be NULL: none at all. */
const uint64_t *known_cells_at(const struct known_cells *c, uint64_t pos);
/* Where the next known cell begins, at or behind pos; UINT64_MAX: there is none. */
uint64_t known_cells_next(const struct known_cells *c, uint64_t pos);

#endif
