/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { MIB = 1 << 20, PLACES_MOST = 256 };

static void test_the_first_session_gets_a_quarter(void **state)
{
	struct budget b = {.total = 100 * MIB, .places = 1};

	(void)state;
	assert_int_equal(budget_share(&b), 100 * MIB);
	b.places = 5;
	assert_int_equal(budget_share(&b), 24 * MIB);
	b.total = (uint64_t)1 << 40;
	assert_int_equal(budget_share(&b), BUDGET_MOST);
}

static void test_nothing_is_left(void **state)
{
	struct budget b = {.total = 8 * MIB, .taken = 7 * MIB + 1, .places = 4, .running = 2};

	(void)state;
	assert_int_equal(budget_share(&b), 0);
	b.taken = 7 * MIB;
	assert_int_equal(budget_share(&b), BUDGET_LEAST);
	/* A configuration that was loaded again may have a smaller one. */
	b.taken = 9 * MIB;
	assert_int_equal(budget_share(&b), 0);
}

/* Fills the budget. Returns how many sessions got something. */
static unsigned fill_budget(uint64_t total, unsigned places)
{
	struct budget b = {.total = total, .places = places};
	uint64_t equal = total / places, share;

	while (b.running < places && (share = budget_share(&b)) > 0) {
		assert_in_range(share, BUDGET_LEAST, BUDGET_MOST);
		/* The first ones do not take what the others need. */
		assert_true(share <= total / 4 || share <= equal || share == BUDGET_LEAST);
		b.taken += share;
		b.running++;
		assert_true(b.taken <= total);
	}
	return b.running;
}

static void test_the_sum_never_exceeds_the_budget(void **state)
{
	(void)state;
	for (unsigned places = 1; places <= PLACES_MOST; places += 3)
		for (uint64_t total = BUDGET_LEAST; total < 4096ull * MIB; total += total / 7 + 1) {
			unsigned got = fill_budget(total, places);

			assert_true(got >= 1);
			/* Each place has its least. */
			if (total >= (uint64_t)places * BUDGET_LEAST)
				assert_int_equal(got, places);
		}
}

static void test_what_a_session_gives_back_is_for_the_next(void **state)
{
	struct budget b = {.total = 64 * MIB, .places = 8};
	uint64_t share = budget_share(&b);

	(void)state;
	b.taken = share;
	b.running = 1;
	assert_true(budget_share(&b) < share);
	b.taken = 2 * MIB;
	assert_in_range(budget_share(&b), share - 1 * MIB, share);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_session_gets_a_quarter),
		cmocka_unit_test(test_nothing_is_left),
		cmocka_unit_test(test_the_sum_never_exceeds_the_budget),
		cmocka_unit_test(test_what_a_session_gives_back_is_for_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
