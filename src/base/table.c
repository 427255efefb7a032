/* SPDX-License-Identifier: Apache-2.0 */
#include "base/table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 64 };

static const void *key_of(const struct table *t, const void *thing)
{
	return (const char *)thing + t->key_at;
}

static bool has_key(const struct table *t, const void *thing, const void *key)
{
	if (t->key_size > 0)
		return memcmp(key_of(t, thing), key, t->key_size) == 0;
	return strcmp(key_of(t, thing), key) == 0;
}

/* The slot of the thing with this key, or the free slot where it may be put. */
static void **find_slot(const struct table *t, const void *key)
{
	size_t size = t->key_size > 0 ? t->key_size : strlen(key);
	size_t at = (size_t)siphash(&t->seed, key, size) & t->mask;

	while (t->slots[at] && !has_key(t, t->slots[at], key))
		at = (at + 1) & t->mask;
	return &t->slots[at];
}

static int grow_slots(struct table *t)
{
	struct table wider = *t;
	size_t at = 0;
	void *thing;

	if (!t->slots && siphash_key_make(&wider.seed))
		return -1;
	wider.mask = t->slots ? 2 * t->mask + 1 : SLOTS_FIRST - 1;
	wider.slots = calloc(wider.mask + 1, sizeof *wider.slots);
	if (!wider.slots)
		return -1;
	while ((thing = table_next(t, &at)))
		*find_slot(&wider, key_of(t, thing)) = thing;
	free(t->slots);
	*t = wider;
	return 0;
}

void *table_find(const struct table *t, const void *key)
{
	return t->slots ? *find_slot(t, key) : NULL;
}

int table_put(struct table *t, void *thing, void **old)
{
	void **slot;

	/* If the table cannot grow, it is filled up to 7/8. Beyond that, searches are too slow. */
	if ((!t->slots || t->count > t->mask / 2) && grow_slots(t) && t->count >= t->mask / 8 * 7)
		return -1;
	slot = find_slot(t, key_of(t, thing));
	if (old)
		*old = *slot;
	t->count += *slot == NULL;
	*slot = thing;
	return 0;
}

void *table_next(const struct table *t, size_t *at)
{
	while (t->slots && *at <= t->mask) {
		void *thing = t->slots[(*at)++];

		if (thing)
			return thing;
	}
	return NULL;
}

void table_clear(struct table *t, void (*each)(void *thing))
{
	size_t at = 0;
	void *thing;

	while ((thing = table_next(t, &at)))
		each(thing);
	free(t->slots);
	t->slots = NULL;
	t->mask = t->count = 0;
}
