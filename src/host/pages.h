/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_PAGES_H
#define HOST_PAGES_H

/*
 * Zeroed memory for a pool, on transparent huge pages where they are to be had: an adapter's tables
 * are then a 512th, and processors miss fewer translations.  Whether they are is no matter of
 * success.  Pages of hugetlbfs are not taken: an administrator has reserved them for a database or
 * a virtual machine, which may start later and then fail for want of them.
 * Never dumped nor forked: a child's copy-on-write would part the adapter's pages from ours.
 */

#include <stddef.h>

enum { PAGES_HUGE = 2 << 20 };

struct pages {
	void *base; /* of a page; of a huge page where bytes are at least one */
	size_t bytes; /* what was asked for */
	size_t mapped; /* what is there */
};
/* -1 with OUT_MEMORY: there is no memory at all. */
int pages_map(struct pages *p, size_t bytes);
void pages_unmap(struct pages *p);

#endif
