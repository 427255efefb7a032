/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_seen.h"

#include <stddef.h>
#include "base/timestamp.h"

struct seen seen_of(const struct stat *st)
{
	return (struct seen){
		.inode = {.dev = st->st_dev, .ino = st->st_ino},
		.mode = st->st_mode,
		.links = st->st_nlink,
		.size = st->st_size,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
	};
}

const char *seen_change(const struct seen *s, const struct stat *now)
{
	if (now->st_size != s->size)
		return now->st_size < s->size ? "shrank" : "";
	return time_equals(&now->st_mtim, &s->mtime) ? NULL : "changed";
}

bool seen_is_same_inode(const struct seen *s, const struct stat *now)
{
	return now->st_dev == s->inode.dev && now->st_ino == s->inode.ino;
}

bool seen_has_content(const struct seen *s, const struct stat *now)
{
	return seen_is_same_inode(s, now) && !seen_change(s, now);
}

bool seen_is_untouched(const struct seen *s, const struct stat *now)
{
	return seen_has_content(s, now) && time_equals(&now->st_ctim, &s->ctime);
}
