/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_inodes.h"

#include <stdint.h>
#include <stdlib.h>
#include "base/fail.h"

enum { SLOTS_FIRST = 256 };

struct inode_slot {
	dev_t dev;
	ino_t ino;
	void *value; /* NULL: the slot is free */
};

static struct inode_slot *find_slot(struct inode_slot *slots, size_t mask, dev_t dev, ino_t ino)
{
	size_t at = (size_t)((ino ^ (dev << 32)) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & mask;

	while (slots[at].value && (slots[at].ino != ino || slots[at].dev != dev))
		at = (at + 1) & mask;
	return &slots[at];
}

static int grow_table(struct inode_table *t)
{
	size_t mask = t->slots ? 2 * t->mask + 1 : SLOTS_FIRST - 1;
	struct inode_slot *wider = calloc(mask + 1, sizeof *wider);

	if (!wider)
		return fail_as(OUT_MEMORY, "remember inodes: %m");
	for (size_t i = 0; t->slots && i <= t->mask; i++) {
		const struct inode_slot *s = &t->slots[i];

		if (s->value)
			*find_slot(wider, mask, s->dev, s->ino) = *s;
	}
	free(t->slots);
	t->slots = wider;
	t->mask = mask;
	return 0;
}

void *inode_find(const struct inode_table *t, dev_t dev, ino_t ino)
{
	return t->slots ? find_slot(t->slots, t->mask, dev, ino)->value : NULL;
}

int inode_add(struct inode_table *t, dev_t dev, ino_t ino, void *value)
{
	if ((!t->slots || t->count > t->mask / 4 * 3) && grow_table(t))
		return -1;
	*find_slot(t->slots, t->mask, dev, ino) =
		(struct inode_slot){.dev = dev, .ino = ino, .value = value};
	t->count++;
	return 0;
}

void inodes_free(struct inode_table *t, void (*each)(void *value))
{
	for (size_t i = 0; t->slots && i <= t->mask; i++) {
		if (t->slots[i].value)
			each(t->slots[i].value);
	}
	free(t->slots);
	*t = (struct inode_table){0};
}
