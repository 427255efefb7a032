/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_SEGMENT_H
#define SIMVERBS_SEGMENT_H

/*
 * Pages of this process that others can map: their anonymous memory is replaced by a memfd at the
 * same address, with the same content.
 *
 * That cannot be done while another thread writes to the pages. So it is done early where that is
 * possible: when the program excludes memory from forks, which it does with all memory that it may
 * register, as ibv_fork_init(3) wants. A segment lasts until the program unmaps it.
 *
 * Where the program has asked for huge pages (MADV_HUGEPAGE) is noted, too.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEGMENT_PIECES = 8 };

/* Consecutive parts of a range, each of one segment. */
struct segment_piece {
	int fd; /* the segment's */
	uint64_t offset, bytes;
};

/* Makes the pages of a range shared, as far as they are not, and describes them. first gets the
 * address of the first page. Returns the number of pieces, or -1 with errno. */
int segment_share(void *addr, size_t length, uint8_t **first,
		  struct segment_piece to[SEGMENT_PIECES]);
/* Whether an address is in a segment; takes no lock. */
bool segment_has(const void *addr);
/* Whether a whole range is excluded from forks. */
bool segment_is_excluded(const void *addr, size_t length);
/* Whether the program has asked for huge pages in a part of a range. */
bool segment_is_huge(const void *addr, size_t length);

#endif
