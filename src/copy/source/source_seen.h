/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_SEEN_H
#define COPY_SOURCE_SOURCE_SEEN_H

/*
 * What was read.  Filled once, from the descriptor that the bytes were read from (of what has no
 * bytes, when it was looked at), and used for all that comes later: the check after reading,
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
/* How the content changed since; NULL: not at all, "": it only grew.  Mode, owner, links, name and
 * ctime are not content. */
const char *seen_change(const struct seen *s, const struct stat *now);
/* Is it the same inode? */
bool seen_is_same_inode(const struct seen *s, const struct stat *now);
/* The same inode with the same content, as far as that can be known without the ctime? */
bool seen_has_content(const struct seen *s, const struct stat *now);
/* Did nothing at all change but the atime? */
bool seen_is_untouched(const struct seen *s, const struct stat *now);
bool time_equals(const struct timespec *a, const struct timespec *b);

#endif
