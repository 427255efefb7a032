/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_LINKS_H
#define COPY_SOURCE_LINKS_H

/* --hard-links: which file was the first name of an inode.  The copy's lock is held in all calls.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct link_first;
struct links {
	struct link_first *slots;
	size_t mask, count;
	uint32_t *failed;
	size_t failed_count;
	bool sorted;
};
/* Here is a name of an inode that has several; id is what it would be sent as.  1: *first is the
 * id of an earlier one.  0: it is the first itself. */
int links_meet(struct links *t, dev_t dev, ino_t ino, uint32_t id, uint32_t *first);
/* A file failed. */
int links_fail(struct links *t, uint32_t id);
/* Did it? Once this was asked, no more fail. */
bool links_failed(struct links *t, uint32_t id);
void links_free(struct links *t);

#endif
