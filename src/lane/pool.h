/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_POOL_H
#define LANE_POOL_H

/*
 * The memory of one lane: count blocks of size bytes. Before each block is a page, whose last
 * LANE_HEAD bytes are the block's head. All is one page-aligned, zeroed mapping (pages.h), excluded
 * from core dumps and from forked children, because it may be registered with an adapter. Free
 * blocks are lent last in, first out, so that they stay in cache.
 */

#include <stddef.h>
#include <stdint.h>
#include "host/pages.h"
#include "lane/lane.h"

struct pool {
	uint8_t *base;
	size_t bytes; /* count * (size + LANE_PAGE) */
	uint32_t count;
	uint32_t size;
	struct block *blocks; /* count of them, blocks[i].slot == i */
	struct block *free;
	struct pages pages;
};

int pool_init(struct pool *p, uint32_t count, uint32_t size);
void pool_free(struct pool *p);
struct block *pool_take(struct pool *p); /* NULL if none is free */
void pool_give(struct pool *p, struct block *b);
void pool_reset(struct pool *p); /* makes all blocks free */
/* The bytes that a pool of these sizes maps, and that an adapter locks. */
size_t pool_bytes(uint32_t count, uint32_t size);

#endif
