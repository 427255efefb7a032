/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASHES_H
#define BASE_HASHES_H

/*
 * A set of hashes, 8 bytes each: open addressing, at most half full.  Bit 0 is not of the
 * hash but its owner's; two that differ only in it are one, and 0 is none.  No lock of its own;
 * zeroed it is empty, and its owner frees slots.
 */

#include <stddef.h>
#include <stdint.h>

struct hashes {
	uint64_t *slots; /* 0: free */
	size_t mask, count;
};

/* Is there room for one more in so many bytes?  0: there is; -1, OUT_MEMORY: of what. */
int hashes_room(struct hashes *h, size_t bytes_max, const char *what);
/* Where it is, or may be put (and counted) after hashes_room(); NULL: there is no slot at all. */
uint64_t *hashes_slot(const struct hashes *h, uint64_t hash);

#endif
