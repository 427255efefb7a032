/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_PAGES_H
#define HOST_PAGES_H

/*
 * Zeroed memory for a pool, on transparent huge pages if they are available: an adapter's tables
 * shrink to a 512th, and processors have fewer TLB misses. Lack of them is no failure. Pages of
 * hugetlbfs are not used: an administrator has reserved them for a database or a virtual machine,
 * which may start later and then fail without them. The memory is excluded from core dumps and from
 * forked children: a child's copy-on-write would separate the adapter's pages from ours.
 */

#include <stddef.h>

enum { PAGES_HUGE = 2 << 20 };

struct pages {
	void *base; /* page aligned; huge-page aligned if bytes is at least one huge page */
	size_t bytes; /* the bytes requested */
	size_t mapped; /* the bytes mapped */
};
/* Returns -1 with OUT_MEMORY if there is no memory at all. */
int pages_map(struct pages *p, size_t bytes);
void pages_unmap(struct pages *p);

#endif
