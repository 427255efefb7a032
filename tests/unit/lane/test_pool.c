/* SPDX-License-Identifier: Apache-2.0 */

/* The memory of a pool: on huge pages where available, and working without them. */

#include "lane/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char setting[] = "/proc/sys/vm/nr_hugepages";

enum { SET_ASIDE = 32, SMALL = 4096, LARGE = 256 << 10 };

/* The smaps line of the mapping that contains `at' that begins with key, or "". */
static void mapping(const void *at, const char *key, char *to, size_t size)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool in = false;

	assert_non_null(f);
	to[0] = '\0';
	while (fgets(line, sizeof line, f)) {
		unsigned long from, end;

		if (sscanf(line, "%lx-%lx ", &from, &end) == 2)
			in = from <= (unsigned long)at && (unsigned long)at < end;
		else if (in && strncmp(line, key, strlen(key)) == 0)
			snprintf(to, size, "%s", line + strlen(key));
	}
	fclose(f);
}

static long set_aside(void)
{
	FILE *f = fopen(setting, "re");
	long n = -1;

	if (f && fscanf(f, "%ld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

/* False: not permitted for this user, or not possible here. */
static bool set(long n)
{
	FILE *f = fopen(setting, "we");
	bool good;

	if (!f)
		return false;
	good = fprintf(f, "%ld\n", n) > 0;
	return fclose(f) == 0 && good;
}

/* All blocks are writable, zeroed at first, and do not overlap. */
static void use(struct pool *p, uint32_t count, uint32_t size)
{
	struct block *b;
	unsigned taken = 0;

	for (uint32_t i = 0; i < count; i++) {
		b = &p->blocks[i];
		assert_int_equal((uintptr_t)b->data % LANE_PAGE, 0);
		assert_true(b->data - LANE_HEAD >= p->base);
		assert_true(b->data + size <= p->base + p->bytes);
		assert_int_equal(b->data[0] | b->data[size - 1] | b->data[-1], 0);
		memset(b->data - LANE_HEAD, (int)i + 1, LANE_HEAD + size);
	}
	for (uint32_t i = 0; i < count; i++) {
		b = &p->blocks[i];
		assert_int_equal(b->data[-LANE_HEAD], i + 1);
		assert_int_equal(b->data[size - 1], i + 1);
	}
	while ((b = pool_take(p)))
		taken++;
	assert_int_equal(taken, count);
}

static void flags_of(const struct pool *p, char *to, size_t size)
{
	mapping(p->base, "VmFlags:", to, size);
	/* Neither inherited by fork nor dumped. */
	assert_non_null(strstr(to, " dc"));
	assert_non_null(strstr(to, " dd"));
}

static void test_small_pool_is_neither_forked_nor_dumped(void **state)
{
	char flags[256];
	struct pool p;

	(void)state;
	assert_int_equal(pool_init(&p, 3, SMALL), 0);
	flags_of(&p, flags, sizeof flags);
	assert_null(strstr(flags, " hg"));
	use(&p, 3, SMALL);
	pool_free(&p);
	pool_free(&p);
}

/* Larger than the reserved huge pages, if any: transparent ones are requested. */
static void test_transparent_huge_pages_are_requested(void **state)
{
	uint32_t count = 12 + (uint32_t)(set_aside() > 0 ? set_aside() * 8 : 0);
	char flags[256], size[64];
	struct pool p;

	(void)state;
	if (count > LANE_DEPTH_MAX)
		skip();
	assert_int_equal(pool_init(&p, count, LARGE), 0);
	assert_int_equal((uintptr_t)p.base % PAGES_HUGE, 0);
	flags_of(&p, flags, sizeof flags);
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0)
		assert_non_null(strstr(flags, " hg"));
	mapping(p.base, "KernelPageSize:", size, sizeof size);
	assert_non_null(strstr(size, " 4 kB"));
	use(&p, count, LARGE);
	pool_free(&p);
}

/* The administrator reserved them for another program. */
static void test_reserved_huge_pages_are_not_used(void **state)
{
	long before = set_aside();
	struct pool p;
	char size[64];

	(void)state;
	if (before < 0 || !set(before + SET_ASIDE))
		skip();
	if (set_aside() < before + SET_ASIDE) {
		set(before);
		skip();
	}
	assert_int_equal(pool_init(&p, 12, LARGE), 0);
	mapping(p.base, "KernelPageSize:", size, sizeof size);
	set(before);
	assert_non_null(strstr(size, " 4 kB"));
	use(&p, 12, LARGE);
	pool_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_pool_is_neither_forked_nor_dumped),
		cmocka_unit_test(test_transparent_huge_pages_are_requested),
		cmocka_unit_test(test_reserved_huge_pages_are_not_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
