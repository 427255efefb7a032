/* SPDX-License-Identifier: Apache-2.0 */
#include "host/pages.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include "base/fail.h"

static size_t round_up(size_t bytes)
{
	return (bytes + PAGES_HUGE - 1) & ~(size_t)(PAGES_HUGE - 1);
}

static void *map_anonymous(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* A transparent huge page needs memory that is aligned to its size. */
static bool map_aligned(struct pages *p)
{
	size_t room = p->bytes + PAGES_HUGE, before;
	uint8_t *base = map_anonymous(room);

	if (base == MAP_FAILED)
		return false;
	before = round_up((uintptr_t)base) - (uintptr_t)base;
	p->base = base + before;
	p->mapped = (p->bytes + 4095) & ~(size_t)4095;
	if (before > 0)
		munmap(base, before);
	munmap(base + before + p->mapped, room - before - p->mapped);
	madvise(p->base, p->mapped, MADV_HUGEPAGE);
	return true;
}

static bool map_plain(struct pages *p)
{
	void *base = map_anonymous(p->bytes);

	if (base == MAP_FAILED)
		return false;
	p->base = base;
	p->mapped = p->bytes;
	return true;
}

int pages_map(struct pages *p, size_t bytes)
{
	bool huge = bytes >= PAGES_HUGE;

	*p = (struct pages){.bytes = bytes};
	if (!(huge && map_aligned(p)) && !map_plain(p))
		return fail_as(OUT_MEMORY, "map %zu bytes for a lane's blocks: %m", bytes);
	madvise(p->base, p->mapped, MADV_DONTFORK);
	madvise(p->base, p->mapped, MADV_DONTDUMP);
	return 0;
}

void pages_unmap(struct pages *p)
{
	if (p->base)
		munmap(p->base, p->mapped);
	*p = (struct pages){0};
}
