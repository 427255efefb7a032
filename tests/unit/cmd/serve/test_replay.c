/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct replay replay;

static void test_a_repeated_hello_is_known(void **state)
{
	(void)state;
	assert_int_equal(replay_init(&replay), 0);
	assert_false(replay_check(&replay, "hello", 5));
	assert_false(replay_check(&replay, "hellp", 5));
	assert_false(replay_check(&replay, "hell", 4));
	assert_true(replay_check(&replay, "hello", 5));
	assert_true(replay_check(&replay, "hello", 5));
	assert_int_equal(replay_init(&replay), 0);
	assert_false(replay_check(&replay, "hello", 5));
}

static void test_most_of_many_hellos_are_known(void **state)
{
	unsigned known = 0;

	(void)state;
	assert_int_equal(replay_init(&replay), 0);
	for (unsigned i = 0; i < REPLAYS_MAX / 4; i++)
		assert_false(replay_check(&replay, &i, sizeof i));
	for (unsigned i = 0; i < REPLAYS_MAX / 4; i++)
		known += replay_check(&replay, &i, sizeof i);
	assert_in_range(known, REPLAYS_MAX / 8, REPLAYS_MAX / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_repeated_hello_is_known),
		cmocka_unit_test(test_most_of_many_hellos_are_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
