/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the contents of several sources go into one directory the first one's names count, as
 * with rsync: lanes overtake each other, so that otherwise any of them would be there in the end,
 * and with --remove-source-files the others nowhere.  Known by 63 bits of a hash of each path,
 * under a key of this run: no two paths can be found that have one.
 */

#include "copy/walk/walk_impl.h"

#include <string.h>

enum { DIRECTORY = 1 /* a bit of a hash */ };

enum walk_name walk_first(struct walk *w, struct walk_dir *d, const char *name, bool dir)
{
	struct hashes *n = &w->names.known;
	const char *path;
	uint64_t hash, *slot;

	if (!w->names.wanted)
		return WALK_NAME_NEW;
	path = walk_path(d, name, w->path, sizeof w->path);
	/* Only its end is known. */
	if (strlen(path) >= sizeof w->path - 1)
		return WALK_NAME_NEW;
	if (hashes_room(n, SIZE_MAX, "names"))
		return WALK_NAME_FAILED;
	hash = siphash(&w->names.key, path, strlen(path)) & ~(uint64_t)DIRECTORY;
	/* None that is used is 0. */
	hash = (hash ? hash : 2 * DIRECTORY) | (dir ? DIRECTORY : 0);
	slot = hashes_slot(n, hash);
	if (*slot && *slot != hash)
		return WALK_NAME_CLASHES;
	if (*slot)
		return dir ? WALK_NAME_AGAIN : WALK_NAME_TAKEN;
	*slot = hash;
	n->count++;
	return WALK_NAME_NEW;
}
