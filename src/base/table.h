/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

/*
 * A hash table of things that hold their own key: open addressing, at most half full while there
 * is memory to grow.  Positions depend on a random key of each table, so a peer that chooses the
 * keys can't make them collide.  The things belong to the table's owner.  No lock of its own.
 *
 * For a set of which only hashes need to be kept see base/hashes.h.
 */

#include <stddef.h>
#include "base/siphash.h"

struct table {
	size_t key_at, key_size; /* in a thing; size 0: a string */
	struct siphash_key seed; /* once there are slots */
	void **slots; /* NULL: free */
	size_t mask, count;
};

/* An empty one: of struct type, by a member without padding ... */
#define TABLE_BY(type, member)                                                                     \
	((struct table){                                                                           \
		.key_at = offsetof(struct type, member),                                           \
		.key_size = sizeof(((struct type *)NULL)->member),                                 \
	})
/* ... or by a string in it, of its own length. */
#define TABLE_BY_STRING(type, member) ((struct table){.key_at = offsetof(struct type, member)})

/* The thing with this key; NULL: none. */
void *table_find(const struct table *t, const void *key);
/* Add a thing.  One with its key leaves the table for it, to *old (else NULL); where there can be
 * none, old may be NULL.  Returns 0, or -1 with errno and nothing changed. */
int table_put(struct table *t, void *thing, void **old);
/* One thing after the other, in no order; *at begins as 0.  NULL: no more. */
void *table_next(const struct table *t, size_t *at);
/* Call each for all things, and leave the table empty. */
void table_clear(struct table *t, void (*each)(void *thing));

#endif
