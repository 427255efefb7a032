/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

/*
 * A hash table of things that contain their own key: open addressing, at most half full while there
 * is memory to grow. Positions depend on a random key per table, so a peer that chooses the keys
 * can't cause collisions. The things belong to the table's owner. It has no lock.
 *
 * For a set that needs only hashes, see base/hash_set.h.
 */

#include <stddef.h>
#include "base/siphash.h"

struct table {
	size_t key_at, key_size; /* offset and size of the key in a thing; size 0: a string */
	struct siphash_key seed; /* valid once there are slots */
	void **slots; /* NULL: free */
	size_t mask, count;
};

/* An empty table of struct type, keyed by a member without padding ... */
#define TABLE_BY(type, member)                                                                     \
	((struct table){                                                                           \
		.key_at = offsetof(struct type, member),                                           \
		.key_size = sizeof(((struct type *)NULL)->member),                                 \
	})
/* ... or by a string member, compared up to its NUL. */
#define TABLE_BY_STRING(type, member) ((struct table){.key_at = offsetof(struct type, member)})

/* The thing with this key; NULL: none. */
void *table_find(const struct table *t, const void *key);
/* Adds a thing. A thing with the same key is removed from the table and returned in *old (else
 * NULL). old may be NULL if there can be none. Returns 0, or -1 with errno and nothing changed. */
int table_put(struct table *t, void *thing, void **old);
/* Iterates over all things in no order; *at starts at 0. NULL: no more. */
void *table_next(const struct table *t, size_t *at);
/* Calls each for every thing, and empties the table. */
void table_clear(struct table *t, void (*each)(void *thing));

#endif
