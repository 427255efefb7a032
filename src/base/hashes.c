/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hashes.h"

#include <stdlib.h>
#include "base/fail.h"

enum { FIRST = 256, OWNERS = 1 };

uint64_t *hashes_slot(const struct hashes *h, uint64_t hash)
{
	size_t at = (size_t)(hash >> 1) & h->mask;

	if (!h->slots)
		return NULL;
	while (h->slots[at] && (h->slots[at] | OWNERS) != (hash | OWNERS))
		at = (at + 1) & h->mask;
	return &h->slots[at];
}

int hashes_room(struct hashes *h, size_t bytes_max, const char *what)
{
	struct hashes wider = {.mask = h->slots ? 2 * h->mask + 1 : FIRST - 1, .count = h->count};

	if (h->slots && h->count <= h->mask / 2)
		return 0;
	if ((wider.mask + 1) * sizeof *wider.slots > bytes_max)
		return fail_as(OUT_MEMORY, "there are more %s than are kept: %zu", what, h->count);
	wider.slots = calloc(wider.mask + 1, sizeof *wider.slots);
	if (!wider.slots)
		return fail_as(OUT_MEMORY, "remember %s: %m", what);
	for (size_t i = 0; h->slots && i <= h->mask; i++) {
		if (h->slots[i])
			*hashes_slot(&wider, h->slots[i]) = h->slots[i];
	}
	free(h->slots);
	*h = wider;
	return 0;
}
