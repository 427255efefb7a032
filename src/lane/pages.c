/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/pages.h"

#include <linux/mman.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include "base/fail.h"

static size_t round_up(size_t bytes)
{
	return (bytes + PAGES_HUGE - 1) & ~(size_t)(PAGES_HUGE - 1);
}

static void *map(size_t bytes, int flags)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		    0);
}

/*
 * That they are set aside does not say that they are where this process may have them (a cpuset,
 * a memory policy, a cgroup's limit), and the first touch of one that is not is SIGBUS.  So all are
 * taken now; a kernel before 5.14 can't be asked to, and does without.
 */
static bool map_set_aside(struct pages *p)
{
	size_t mapped = round_up(p->bytes);
	void *base = map(mapped, MAP_HUGETLB | MAP_HUGE_2MB);

	if (base == MAP_FAILED)
		return false;
	if (madvise(base, mapped, MADV_POPULATE_WRITE)) {
		munmap(base, mapped);
		return false;
	}
	p->base = base;
	p->mapped = mapped;
	return true;
}

/* Transparent ones take the place of pages that lie as they do. */
static bool map_aligned(struct pages *p)
{
	size_t room = p->bytes + PAGES_HUGE, before;
	uint8_t *base = map(room, 0);

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
	void *base = map(p->bytes, 0);

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
	if (!(huge && (map_set_aside(p) || map_aligned(p))) && !map_plain(p))
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
