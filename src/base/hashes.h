/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASHES_H
#define BASE_HASHES_H

/*
 * A set that keeps 8 bytes per member: a hash with a random key of the set, so that nobody can
 * construct two members with the same hash. Open addressing, at most half full. It has no lock. All
 * zeros is an empty set; its owner frees slots.
 *
 * To find things by key, see base/table.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/siphash.h"

struct hashes {
	struct siphash_key seed; /* valid once there are slots */
	uint64_t *slots; /* 0: free */
	size_t mask, count;
};

/* Adds a member of size bytes. Returns 1 if it is new, 0 if it was in the set. Returns -1 if
 * bytes_max allows no more slots or memory ran out: OUT_MEMORY, with `members' in the message. */
int hashes_add(struct hashes *h, const void *member, size_t size, size_t bytes_max,
	       const char *members);
bool hashes_has(const struct hashes *h, const void *member, size_t size);

#endif
