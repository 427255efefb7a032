/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASHES_H
#define BASE_HASHES_H

/*
 * A set that keeps 8 bytes of each member: a hash under a random key of the set's own, by which
 * nobody can find two members that are taken for one.  Open addressing, at most half full.  No
 * lock of its own; zeroed it is empty, and its owner frees slots.
 *
 * For things that are to be found by their key see base/table.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/siphash.h"

struct hashes {
	struct siphash_key seed; /* once there are slots */
	uint64_t *slots; /* 0: free */
	size_t mask, count;
};

/* Add a member of so many bytes.  1: it is new.  0: it was there.  -1: there is no room in
 * bytes_max for one more slot, or no memory; OUT_MEMORY, of what. */
int hashes_add(struct hashes *h, const void *member, size_t size, size_t bytes_max,
	       const char *what);
bool hashes_has(const struct hashes *h, const void *member, size_t size);

#endif
