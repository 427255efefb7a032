/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_REGION_H
#define SIMVERBS_REGION_H

/* Memory regions: their keys, their checks, and the memory that they lock. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include "area.h"
#include "segment.h"

struct region {
	struct ibv_mr mr;
	uint32_t access;
	uint8_t *first; /* of the pages */
	size_t bytes; /* of the pages */
	struct segment_piece piece[SEGMENT_PIECES];
	int pieces;
	struct region *next;
};

/* The regions of this process, for peers. fd is the area's. NULL with errno. */
const struct region_area *region_table(int *fd);

/* Looks at a range and key against a table; IBV_ACCESS_ flags that are needed. pd 0: any. */
bool region_allows(const struct region_area *table, uint32_t pd, uint32_t key, uint64_t addr,
		   uint64_t length, uint32_t access);

/* Calls fn for each region of a protection domain, under the regions' lock. */
void region_each(uint32_t pd, void (*fn)(const struct region *r, void *arg), void *arg);

/* Counts memory against RLIMIT_MEMLOCK, as the adapter's driver does. Returns -1 with ENOMEM. */
struct personality;
int memory_lock(const struct personality *p, uint64_t bytes);
void memory_unlock(uint64_t bytes);

#endif
