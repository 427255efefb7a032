/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_TOLD_H
#define COPY_SOURCE_SOURCE_TOLD_H

/* Digests of cells of a file that the sink has: told with the lock held, then one file's. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "protocol/message.h"

enum { TOLD_BYTES_MAX = 256 << 20 /* of all files: some 4 TiB of theirs */ };

struct known_cells;
/* Add what came, of a file of this size; makes *c at the first. Cells ascend, and none is beyond
 * the end: else -1, OUT_PROTOCOL.  bytes: what is kept of all files; beyond TOLD_BYTES_MAX nothing
 * is. */
int known_cells_add(struct known_cells **c, const struct msg_cells *m, uint64_t size,
		    atomic_size_t *bytes);
/* Is there something that was told and not kept? */
bool known_cells_is_cut(const struct known_cells *c);
void known_cells_free(struct known_cells *c); /* NULL: nothing */
/* The digest of the cell at pos; NULL: it was not told. c NULL: none was. */
const uint64_t *known_cells_at(const struct known_cells *c, uint64_t pos);
/* Where the next one that was told begins, at or behind pos; UINT64_MAX: there is none. */
uint64_t known_cells_next(const struct known_cells *c, uint64_t pos);

#endif
