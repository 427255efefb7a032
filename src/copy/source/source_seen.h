/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_SEEN_H
#define COPY_SOURCE_SOURCE_SEEN_H

/*
 * What was read.  It is filled once, from the descriptor that the bytes were read from, or, for
 * what has no bytes, when it was examined.  Everything later uses it: the check after reading,
 * --remove-source-files, and further names of the same inode.
 */

#include <stdbool.h>
#include <sys/stat.h>

struct inode_key {
	dev_t dev;
	ino_t ino;
};
struct seen {
	struct inode_key inode;
	mode_t mode;
	nlink_t links;
	off_t size;
	struct timespec mtime, ctime;
};

struct seen seen_of(const struct stat *st);
/* How the content changed since; NULL: it did not; "": it only grew.  Mode, owner, link count, name
 * and ctime do not belong to the content. */
const char *seen_change(const struct seen *s, const struct stat *now);
bool seen_is_same_inode(const struct seen *s, const struct stat *now);
/* The same inode with the same content, as far as that can be known without the ctime? */
bool seen_has_content(const struct seen *s, const struct stat *now);
/* Is everything unchanged, except for the atime? */
bool seen_is_untouched(const struct seen *s, const struct stat *now);

#endif
