/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash_set.h"

#include <stdlib.h>
#include "base/fail.h"

enum { SLOTS_FIRST = 256 };

/* The slot of this hash, or the free slot where it may be put. */
static uint64_t *find_hash_slot(const struct hash_set *h, uint64_t hash)
{
	size_t at = (size_t)hash & h->mask;

	while (h->slots[at] && h->slots[at] != hash)
		at = (at + 1) & h->mask;
	return &h->slots[at];
}

static uint64_t hash_member(const struct hash_set *h, const void *member, size_t size)
{
	uint64_t hash = siphash(&h->seed, member, size);

	return hash ? hash : 1;
}

static int reserve_slot(struct hash_set *h, size_t bytes_max, const char *members)
{
	struct hash_set wider = *h;

	if (h->slots && h->count <= h->mask / 2)
		return 0;
	if (!h->slots && siphash_key_make(&wider.seed))
		return -1;
	wider.mask = h->slots ? 2 * h->mask + 1 : SLOTS_FIRST - 1;
	if ((wider.mask + 1) * sizeof *wider.slots > bytes_max)
		return fail_as(OUT_MEMORY, "too many %s to keep in memory: %zu", members, h->count);
	wider.slots = calloc(wider.mask + 1, sizeof *wider.slots);
	if (!wider.slots)
		return fail_as(OUT_MEMORY, "allocate a table of %s: %m", members);
	for (size_t i = 0; h->slots && i <= h->mask; i++) {
		if (h->slots[i])
			*find_hash_slot(&wider, h->slots[i]) = h->slots[i];
	}
	free(h->slots);
	*h = wider;
	return 0;
}

int hash_set_add(struct hash_set *h, const void *member, size_t size, size_t bytes_max,
		 const char *members)
{
	uint64_t hash, *slot;

	if (reserve_slot(h, bytes_max, members))
		return -1;
	hash = hash_member(h, member, size);
	slot = find_hash_slot(h, hash);
	if (*slot)
		return 0;
	*slot = hash;
	h->count++;
	return 1;
}

bool hash_set_has(const struct hash_set *h, const void *member, size_t size)
{
	return h->slots && *find_hash_slot(h, hash_member(h, member, size)) != 0;
}
