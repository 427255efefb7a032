/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source_links.h"

#include <stdlib.h>
#include "base/fail.h"

enum { FIRST = 256 };

struct link_first {
	dev_t dev;
	ino_t ino;
	uint32_t id; /* 0: the slot is free */
};

static struct link_first *slot_of(struct link_first *slots, size_t mask, dev_t dev, ino_t ino)
{
	size_t at = (size_t)((ino ^ (dev << 32)) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & mask;

	while (slots[at].id && (slots[at].ino != ino || slots[at].dev != dev))
		at = (at + 1) & mask;
	return &slots[at];
}

static int grow(struct links *t)
{
	size_t mask = t->slots ? 2 * t->mask + 1 : FIRST - 1;
	struct link_first *wider = calloc(mask + 1, sizeof *wider);

	if (!wider)
		return fail_as(OUT_MEMORY, "remember hard links: %m");
	for (size_t i = 0; t->slots && i <= t->mask; i++) {
		const struct link_first *f = &t->slots[i];

		if (f->id)
			*slot_of(wider, mask, f->dev, f->ino) = *f;
	}
	free(t->slots);
	t->slots = wider;
	t->mask = mask;
	return 0;
}

int links_meet(struct links *t, dev_t dev, ino_t ino, uint32_t id, uint32_t *first)
{
	struct link_first *f;

	if ((!t->slots || t->count > t->mask / 4 * 3) && grow(t))
		return -1;
	f = slot_of(t->slots, t->mask, dev, ino);
	if (f->id) {
		*first = f->id;
		return 1;
	}
	*f = (struct link_first){.dev = dev, .ino = ino, .id = id};
	t->count++;
	return 0;
}

int links_fail(struct links *t, uint32_t id)
{
	uint32_t *more;

	if ((t->failed_count & (t->failed_count - 1)) == 0) {
		more = reallocarray(t->failed, t->failed_count ? 2 * t->failed_count : 1,
				    sizeof *more);
		if (!more)
			return fail_as(OUT_MEMORY, "remember hard links: %m");
		t->failed = more;
	}
	t->failed[t->failed_count++] = id;
	t->sorted = false;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

bool links_failed(struct links *t, uint32_t id)
{
	if (t->failed_count == 0)
		return false;
	if (!t->sorted)
		qsort(t->failed, t->failed_count, sizeof *t->failed, by_number);
	t->sorted = true;
	return bsearch(&id, t->failed, t->failed_count, sizeof id, by_number);
}

void links_free(struct links *t)
{
	free(t->slots);
	free(t->failed);
	*t = (struct links){0};
}
