/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/fail.h"
#include "base/hash_set.h"

static void added_members_are_found(void **state)
{
	enum { MEMBERS = 50000 };
	struct hash_set h = {0};

	(void)state;
	assert_false(hash_set_has(&h, "", 0));
	for (uint32_t i = 0; i < MEMBERS; i++) {
		uint32_t member = i << 12 | i >> 20, other = ~member;

		assert_false(hash_set_has(&h, &member, sizeof member));
		assert_int_equal(hash_set_add(&h, &member, sizeof member, SIZE_MAX, "words"), 1);
		assert_int_equal(hash_set_add(&h, &member, sizeof member, SIZE_MAX, "words"), 0);
		assert_int_equal(h.count, i + 1);
		assert_false(hash_set_has(&h, &other, sizeof other));
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(hash_set_has(&h, &(uint32_t){i << 12 | i >> 20}, sizeof(uint32_t)));
	free(h.slots);
}

static void members_are_compared_completely(void **state)
{
	struct hash_set h = {0};

	(void)state;
	assert_int_equal(hash_set_add(&h, "abcdefgh", 8, SIZE_MAX, "words"), 1);
	assert_int_equal(hash_set_add(&h, "abcdefgh", 7, SIZE_MAX, "words"), 1);
	assert_int_equal(hash_set_add(&h, "abcdefgh", 9, SIZE_MAX, "words"), 1);
	assert_int_equal(hash_set_add(&h, "", 0, SIZE_MAX, "words"), 1);
	assert_false(hash_set_has(&h, "bbcdefgh", 8));
	assert_false(hash_set_has(&h, "abcdefgi", 8));
	assert_true(hash_set_has(&h, "abcdefgh", 8));
	assert_int_equal(h.count, 4);
	free(h.slots);
}

/* Otherwise a peer could precompute two members that collide in every set. */
static void each_set_has_a_seed_of_its_own(void **state)
{
	struct hash_set a = {0}, b = {0};

	(void)state;
	assert_int_equal(hash_set_add(&a, "a", 1, SIZE_MAX, "words"), 1);
	assert_int_equal(hash_set_add(&b, "a", 1, SIZE_MAX, "words"), 1);
	assert_memory_not_equal(&a.seed, &b.seed, sizeof a.seed);
	assert_memory_not_equal(a.slots, b.slots, (a.mask + 1) * sizeof *a.slots);
	free(a.slots);
	free(b.slots);
}

static void set_refuses_to_exceed_its_bytes(void **state)
{
	enum { BYTES = 16 << 10 };
	struct hash_set h = {0};
	uint32_t i = 0;

	(void)state;
	assert_int_equal(hash_set_add(&h, &i, sizeof i, 8, "words"), -1);
	assert_int_equal(failed()->code, OUT_MEMORY);
	assert_int_equal(h.count, 0);
	while (hash_set_add(&h, &i, sizeof i, BYTES, "words") > 0)
		i++;
	assert_int_equal(failed()->code, OUT_MEMORY);
	assert_string_equal(failed()->text, "too many words to keep in memory: 1024");
	assert_int_equal(h.count, i);
	assert_true((h.mask + 1) * sizeof *h.slots <= BYTES);
	/* The existing members stay. */
	for (uint32_t k = 0; k < i; k++)
		assert_true(hash_set_has(&h, &k, sizeof k));
	/* With a larger limit it grows again. */
	assert_int_equal(hash_set_add(&h, &i, sizeof i, SIZE_MAX, "words"), 1);
	free(h.slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(added_members_are_found),
		cmocka_unit_test(members_are_compared_completely),
		cmocka_unit_test(each_set_has_a_seed_of_its_own),
		cmocka_unit_test(set_refuses_to_exceed_its_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
