/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_links.h"

#include <stdlib.h>
#include "base/fail.h"

static struct link_group *add_group(struct links *t, const struct seen *seen)
{
	struct link_group *g = calloc(1, sizeof *g);

	if (!g) {
		fail_as(OUT_MEMORY, "track hard links: %m");
		return NULL;
	}
	g->seen = *seen;
	if (table_put(&t->groups, g, NULL)) {
		free(g);
		fail_as(OUT_MEMORY, "track hard links: %m");
		return NULL;
	}
	return g;
}

int links_join(struct links *t, const struct seen *seen, uint32_t id, struct link_group **out)
{
	struct link_group *g = table_find(&t->groups, &seen->inode);

	if (!g && !(g = add_group(t, seen)))
		return -1;
	*out = g;
	if (g->id && (!links_lead_failed(t, g) || g->leads >= LEADS_MAX))
		return 1;
	g->seen = *seen;
	g->id = id;
	g->round = t->round;
	g->leads++;
	return 0;
}

void links_fail(struct links *t, uint32_t id)
{
	if (hash_set_add(&t->failed, &id, sizeof id, SIZE_MAX, "failed files") < 0)
		t->all_failed = true;
}

bool links_lead_failed(const struct links *t, const struct link_group *g)
{
	return t->all_failed || hash_set_has(&t->failed, &g->id, sizeof g->id);
}

void links_free(struct links *t)
{
	table_clear(&t->groups, free);
	free(t->failed.slots);
	*t = LINKS_NONE;
}
