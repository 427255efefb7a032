/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/census.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"

enum { MIB = 1 << 20 };

static const struct entrant alice = {"alice", "data"}, bob = {"bob", "data"},
			    lister = {"alice", ""}, nobody = {"-", "inbox"};
static const struct limits wide = {.sessions = SESSIONS_MAX, .memory = 4096ull * MIB};
static struct census census;

static int reset_census(void **state)
{
	(void)state;
	memset(&census, 0, sizeof census);
	return 0;
}

static uint64_t enter(const struct limits *l, unsigned most, pid_t pid, const struct entrant *who)
{
	unsigned slot = SESSIONS_MAX;
	uint64_t memory;

	assert_int_equal(census_enter(&census, l, most, pid, who, &memory, &slot), 0);
	assert_int_equal(census.list[slot].pid, pid);
	return memory;
}

static void assert_refused(const struct limits *l, unsigned most, const struct entrant *who,
			   const char *why)
{
	unsigned before = census.count, slot;
	uint64_t memory;

	assert_int_equal(census_enter(&census, l, most, 999, who, &memory, &slot), -1);
	assert_int_equal(failed()->code, OUT_CONNECT);
	assert_non_null(strstr(failed()->text, why));
	assert_int_equal(census.count, before);
}

static void test_sessions_in_all(void **state)
{
	struct limits l = wide;

	(void)state;
	l.sessions = 2;
	enter(&l, 0, 1, &alice);
	enter(&l, 0, 2, &lister);
	assert_refused(&l, 0, &bob, "serves 2 sessions already (max sessions)");
	census_leave(&census, 1);
	census_leave(&census, 1);
	enter(&l, 0, 3, &bob);
	assert_int_equal(census.count, 2);
}

static void test_sessions_of_a_user(void **state)
{
	struct limits l = wide;

	(void)state;
	l.sessions_per_user = 1;
	enter(&l, 0, 1, &alice);
	assert_refused(&l, 0, &lister, "user alice has 1 sessions already");
	enter(&l, 0, 2, &bob);
	enter(&l, 0, 3, &nobody);
	assert_refused(&l, 0, &nobody, "clients without a user have 1 sessions already");
}

static void test_sessions_of_a_module(void **state)
{
	(void)state;
	enter(&wide, 2, 1, &alice);
	enter(&wide, 2, 2, &bob);
	assert_refused(&wide, 2, &alice, "module data has 2 sessions already (max connections)");
	enter(&wide, 2, 3, &nobody);
	enter(&wide, 2, 4, &lister);
	census_leave(&census, 2);
	enter(&wide, 2, 5, &alice);
}

static void test_memory(void **state)
{
	struct limits l = {.sessions = 4, .memory = 4 * MIB};
	uint64_t first;

	(void)state;
	first = enter(&l, 0, 1, &alice);
	assert_int_equal(enter(&l, 0, 2, &lister), 0);
	assert_true(enter(&l, 0, 3, &bob) >= MIB);
	assert_true(enter(&l, 0, 4, &bob) >= MIB);
	l.sessions = 8;
	l.memory = 3 * MIB;
	assert_refused(&l, 0, &bob, "all of its memory (3 MiB");
	/* What it does not take is for others; it cannot take more. */
	census_lower(&census, 1, first / 8);
	census_lower(&census, 1, 100 * MIB);
	census_lower(&census, 77, 0);
	assert_int_equal(census.list[0].memory, first / 8);
	census_leave(&census, 3);
	assert_true(enter(&l, 0, 5, &bob) >= MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_sessions_in_all, reset_census),
		cmocka_unit_test_setup(test_sessions_of_a_user, reset_census),
		cmocka_unit_test_setup(test_sessions_of_a_module, reset_census),
		cmocka_unit_test_setup(test_memory, reset_census),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
