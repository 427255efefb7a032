/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the contents of several sources go into one directory, a name of the first source takes
 * precedence, as with rsync.  Otherwise, because lanes overtake each other, any of them could be
 * there in the end, and with --remove-source-files the others would be lost.
 */

#include "copy/walk/walk_impl.h"

#include <string.h>

enum walk_name walk_claim_name(struct walk *w, struct walk_dir *d, const char *name, bool dir)
{
	struct walk_names *n = &w->names;
	const char *path;
	size_t len;
	int added;

	if (!n->wanted)
		return WALK_NAME_NEW;
	path = walk_path(d, name, w->path, sizeof w->path);
	len = strlen(path);
	/* A path that was cut cannot be compared. */
	if (len >= sizeof w->path - 1)
		return WALK_NAME_NEW;
	if (hash_set_has(dir ? &n->others : &n->dirs, path, len))
		return WALK_NAME_CLASHES;
	added = hash_set_add(dir ? &n->dirs : &n->others, path, len, SIZE_MAX, "names");
	if (added < 0)
		return WALK_NAME_FAILED;
	return added ? WALK_NAME_NEW : dir ? WALK_NAME_AGAIN : WALK_NAME_TAKEN;
}
