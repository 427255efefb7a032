/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the contents of several sources go into one directory the first one's names count, as
 * with rsync: lanes overtake each other, so that otherwise any of them would be there in the end,
 * and with --remove-source-files the others nowhere.  Known by 63 bits of a hash of each path.
 */

#include "copy/walk_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/fail.h"

enum { FIRST = 1024, DIRECTORY = 1 /* a bit of a hash */ };

static uint64_t *slot_of(uint64_t *slots, size_t mask, uint64_t hash)
{
	size_t at = (size_t)(hash >> 1) & mask;

	while (slots[at] && (slots[at] | DIRECTORY) != (hash | DIRECTORY))
		at = (at + 1) & mask;
	return &slots[at];
}

static int grow(struct walk_names *n)
{
	size_t mask = n->slots ? 2 * n->mask + 1 : FIRST - 1;
	uint64_t *wider = calloc(mask + 1, sizeof *wider);

	if (!wider)
		return fail_as(OUT_MEMORY, "remember names: %m");
	for (size_t i = 0; n->slots && i <= n->mask; i++) {
		if (n->slots[i])
			*slot_of(wider, mask, n->slots[i]) = n->slots[i];
	}
	free(n->slots);
	n->slots = wider;
	n->mask = mask;
	return 0;
}

int walk_first(struct walk *w, struct walk_dir *d, const char *name, bool dir)
{
	struct walk_names *n = &w->names;
	const char *path;
	uint64_t hash, *slot;

	if (!n->wanted)
		return 1;
	path = walk_path(d, name, w->path, sizeof w->path);
	/* Only its end is known. */
	if (strlen(path) >= sizeof w->path - 1)
		return 1;
	if ((!n->slots || n->count > n->mask / 4 * 3) && grow(n))
		return -1;
	hash = XXH3_64bits(path, strlen(path)) & ~(uint64_t)DIRECTORY;
	/* None that is used is 0. */
	hash = (hash ? hash : 2 * DIRECTORY) | (dir ? DIRECTORY : 0);
	slot = slot_of(n->slots, n->mask, hash);
	if (*slot)
		return dir && *slot == hash;
	*slot = hash;
	n->count++;
	return 1;
}
