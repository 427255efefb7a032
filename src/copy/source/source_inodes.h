/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_INODES_H
#define COPY_SOURCE_SOURCE_INODES_H

/* Something for each of some inodes.  No lock of its own; zeroed it is empty. */

#include <stddef.h>
#include <sys/types.h>

struct inode_slot;
struct inode_table {
	struct inode_slot *slots;
	size_t mask, count;
};
/* What there is for it; NULL: nothing. */
void *inode_find(const struct inode_table *t, dev_t dev, ino_t ino);
/* There is nothing yet: 0, or -1, OUT_MEMORY. */
int inode_add(struct inode_table *t, dev_t dev, ino_t ino, void *value);
/* The values are their owner's: each is called for all of them. */
void inodes_free(struct inode_table *t, void (*each)(void *value));

#endif
