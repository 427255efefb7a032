/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASH_SET_H
#define BASE_HASH_SET_H

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

struct hash_set {
	struct siphash_key seed; /* valid once there are slots */
	uint64_t *slots; /* 0: free */
	size_t mask, count;
};

/* Adds a member of size bytes. Returns 1 if it is new, 0 if it was in the set. Returns -1 if
 * bytes_max allows no more slots or memory ran out: OUT_MEMORY, with `members' in the message. */
int hash_set_add(struct hash_set *h, const void *member, size_t size, size_t bytes_max,
		 const char *members);
bool hash_set_has(const struct hash_set *h, const void *member, size_t size);

#endif
