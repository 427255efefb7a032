/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>
#include "base/table.h"

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

struct thing {
	int value;
	uint32_t id;
};

static size_t visited;

static void visit(void *thing)
{
	assert_non_null(thing);
	visited++;
}

static void empty_table_finds_nothing(void **state)
{
	struct table t = TABLE_BY(thing, id);
	uint32_t id = 0;
	size_t at = 0;

	(void)state;
	assert_null(table_find(&t, &id));
	assert_null(table_next(&t, &at));
	visited = 0;
	table_clear(&t, visit);
	assert_int_equal(visited, 0);
}

static void inserted_entries_are_found(void **state)
{
	enum { THINGS = 20000 };
	struct thing *of = calloc(THINGS, sizeof *of), *next;
	struct table t = TABLE_BY(thing, id);
	size_t at = 0, sum = 0;

	(void)state;
	for (uint32_t i = 0; i < THINGS; i++) {
		uint32_t missing = (i + 1) << 10;

		/* Neighbouring keys, and multiples of a power of two. */
		of[i] = (struct thing){.value = (int)i, .id = i % 2 ? i : i << 10};
		if (i % 2)
			missing = i + THINGS;
		assert_null(table_find(&t, &of[i].id));
		assert_int_equal(table_put(&t, &of[i], NULL), 0);
		assert_int_equal(t.count, i + 1);
		assert_ptr_equal(table_find(&t, &of[i].id), &of[i]);
		assert_null(table_find(&t, &missing));
	}
	for (uint32_t i = 0; i < THINGS; i++)
		assert_ptr_equal(table_find(&t, &(uint32_t){of[i].id}), &of[i]);
	while ((next = table_next(&t, &at)))
		sum += (size_t)next->value;
	assert_int_equal(sum, (size_t)THINGS * (THINGS - 1) / 2);
	visited = 0;
	table_clear(&t, visit);
	assert_int_equal(visited, THINGS);
	assert_null(table_find(&t, &of[0].id));
	/* The table can be reused. */
	assert_int_equal(table_put(&t, &of[0], NULL), 0);
	assert_ptr_equal(table_find(&t, &of[0].id), &of[0]);
	table_clear(&t, visit);
	free(of);
}

static void entry_replaces_another_in_place(void **state)
{
	struct thing a = {.value = 1, .id = 7}, b = {.value = 2, .id = 7}, c = {.id = 8};
	struct table t = TABLE_BY(thing, id);
	void *old = &t;

	(void)state;
	assert_int_equal(table_put(&t, &a, &old), 0);
	assert_null(old);
	assert_int_equal(table_put(&t, &b, &old), 0);
	assert_ptr_equal(old, &a);
	assert_int_equal(table_put(&t, &c, &old), 0);
	assert_null(old);
	assert_int_equal(t.count, 2);
	assert_ptr_equal(table_find(&t, &a.id), &b);
	table_clear(&t, visit);
}

struct named {
	int value;
	char name[];
};

static void keys_may_be_strings(void **state)
{
	static const char *const names[] = {"", "a", "ab", "b", "abcdefgh", "abcdefghi"};
	struct table t = TABLE_BY_STRING(named, name);

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct named *n = malloc(sizeof *n + strlen(names[i]) + 1);

		assert_non_null(n);
		n->value = (int)i;
		strcpy(n->name, names[i]);
		assert_null(table_find(&t, names[i]));
		assert_int_equal(table_put(&t, n, NULL), 0);
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const struct named *n = table_find(&t, names[i]);

		assert_non_null(n);
		assert_int_equal(n->value, i);
	}
	assert_null(table_find(&t, "abc"));
	table_clear(&t, free);
}

struct two_words {
	uint64_t key[2];
};

static void keys_are_compared_completely(void **state)
{
	struct two_words of[64];
	struct table t = TABLE_BY(two_words, key);

	(void)state;
	for (size_t i = 0; i < 64; i++) {
		of[i] = (struct two_words){.key = {i / 8, i % 8}};
		assert_null(table_find(&t, of[i].key));
		assert_int_equal(table_put(&t, &of[i], NULL), 0);
	}
	assert_null(table_find(&t, (uint64_t[]){3, 8}));
	assert_ptr_equal(table_find(&t, (uint64_t[]){3, 5}), &of[29]);
	table_clear(&t, visit);
}

/* Keys that share a slot in one table do not share one in another. */
static void each_table_has_a_seed_of_its_own(void **state)
{
	enum { THINGS = 32 };
	struct table a = TABLE_BY(thing, id), b = TABLE_BY(thing, id);
	struct thing of[THINGS];
	size_t at_a = 0, at_b = 0, differ = 0;

	(void)state;
	for (uint32_t i = 0; i < THINGS; i++) {
		of[i].id = i;
		assert_int_equal(table_put(&a, &of[i], NULL), 0);
		assert_int_equal(table_put(&b, &of[i], NULL), 0);
	}
	for (size_t i = 0; i < THINGS; i++)
		differ += table_next(&a, &at_a) != table_next(&b, &at_b);
	assert_true(differ > 0);
	assert_memory_not_equal(&a.seed, &b.seed, sizeof a.seed);
	table_clear(&a, visit);
	table_clear(&b, visit);
}

static void table_that_cannot_grow_accepts_some_more(void **state)
{
	enum { THINGS = 1 << 17 };
	struct thing *of = calloc(THINGS, sizeof *of);
	struct rlimit was, none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
	struct table t = TABLE_BY(thing, id);
	size_t i = 0, mask;

	(void)state;
	assert_non_null(of);
	/* Fragmented, so that freed memory cannot serve a larger table. */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	for (; i < THINGS / 2; i++) {
		of[i].id = (uint32_t)i;
		assert_int_equal(table_put(&t, &of[i], NULL), 0);
	}
	mask = t.mask;
	assert_int_equal(mask, THINGS - 1);
	/* Sanitizers allocate memory of their own. */
	if (!SANITIZED) {
		assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
		none.rlim_max = was.rlim_max;
		assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
		for (errno = 0; i <= mask; i++) {
			of[i].id = (uint32_t)i;
			if (table_put(&t, &of[i], NULL))
				break;
		}
		setrlimit(RLIMIT_AS, &was);
		assert_int_equal(errno, ENOMEM);
		assert_int_equal(t.mask, mask);
		/* Some slots stay free, so that every search ends soon. */
		assert_int_equal(i, mask / 8 * 7);
		assert_null(table_find(&t, &(uint32_t){THINGS + 1}));
	}
	assert_int_equal(t.count, i);
	for (size_t k = 0; k < i; k++)
		assert_ptr_equal(table_find(&t, &of[k].id), &of[k]);
	table_clear(&t, visit);
	free(of);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_table_finds_nothing),
		cmocka_unit_test(inserted_entries_are_found),
		cmocka_unit_test(entry_replaces_another_in_place),
		cmocka_unit_test(keys_may_be_strings),
		cmocka_unit_test(keys_are_compared_completely),
		cmocka_unit_test(each_table_has_a_seed_of_its_own),
		cmocka_unit_test(table_that_cannot_grow_accepts_some_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
