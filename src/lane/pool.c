/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/pool.h"

#include <stdlib.h>
#include "base/fail.h"

size_t pool_bytes(uint32_t count, uint32_t size)
{
	return (size_t)count * ((size_t)size + LANE_PAGE);
}

int pool_init(struct pool *p, uint32_t count, uint32_t size)
{
	size_t stride = (size_t)size + LANE_PAGE;
	size_t bytes = pool_bytes(count, size);
	uint8_t *base;

	*p = (struct pool){0};
	if (pages_map(&p->pages, bytes))
		return -1;
	base = p->pages.base;
	p->blocks = calloc(count, sizeof *p->blocks);
	if (!p->blocks) {
		fail_as(OUT_MEMORY, "allocate a lane of %u blocks: %m", count);
		pages_unmap(&p->pages);
		return -1;
	}
	p->base = base;
	p->bytes = bytes;
	p->count = count;
	p->size = size;
	for (uint32_t i = 0; i < count; i++) {
		p->blocks[i].data = base + i * stride + LANE_PAGE;
		p->blocks[i].slot = i;
	}
	pool_reset(p);
	return 0;
}

void pool_free(struct pool *p)
{
	pages_unmap(&p->pages);
	free(p->blocks);
	*p = (struct pool){0};
}

void pool_reset(struct pool *p)
{
	p->free = NULL;
	for (uint32_t i = p->count; i > 0; i--)
		pool_give(p, &p->blocks[i - 1]);
}

struct block *pool_take(struct pool *p)
{
	struct block *b = p->free;

	if (b)
		p->free = b->next;
	return b;
}

void pool_give(struct pool *p, struct block *b)
{
	b->next = p->free;
	p->free = b;
}
