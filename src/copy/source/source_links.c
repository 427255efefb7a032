/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_links.h"

#include <stdlib.h>
#include "base/fail.h"

/* Bit 0 of a hash is its owner's. */
static uint64_t hash_id(uint32_t id)
{
	return (uint64_t)id << 1;
}

static struct link_group *add_group(struct links *t, const struct seen *seen)
{
	struct link_group *g = calloc(1, sizeof *g);

	if (!g) {
		fail_as(OUT_MEMORY, "remember hard links: %m");
		return NULL;
	}
	g->seen = *seen;
	if (table_put(&t->groups, g, NULL)) {
		free(g);
		fail_as(OUT_MEMORY, "remember hard links: %m");
		return NULL;
	}
	return g;
}

int links_meet(struct links *t, const struct seen *seen, uint32_t id, struct link_group **out)
{
	struct link_group *g = table_find(&t->groups, &seen->inode);

	if (!g && !(g = add_group(t, seen)))
		return -1;
	*out = g;
	if (g->id && (!links_lost(t, g) || g->leads >= LEADS_MAX))
		return 1;
	g->seen = *seen;
	g->id = id;
	g->round = t->round;
	g->leads++;
	return 0;
}

void links_fail(struct links *t, uint32_t id)
{
	uint64_t *slot;

	if (hashes_room(&t->failed, SIZE_MAX, "failed files")) {
		t->all_failed = true;
		return;
	}
	slot = hashes_slot(&t->failed, hash_id(id));
	t->failed.count += *slot == 0;
	*slot = hash_id(id);
}

bool links_lost(const struct links *t, const struct link_group *g)
{
	const uint64_t *slot = hashes_slot(&t->failed, hash_id(g->id));

	return t->all_failed || (slot && *slot);
}

void links_free(struct links *t)
{
	table_clear(&t->groups, free);
	free(t->failed.slots);
	*t = LINKS_NONE;
}
