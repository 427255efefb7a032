/* SPDX-License-Identifier: Apache-2.0 */
/* As whom the sessions of a module run. */
#include "cmd/serve/account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#undef fail
#include <cmocka.h>

static void names_and_numbers_are_taken(void **state)
{
	struct run_as a = {0};

	(void)state;
	assert_int_equal(account_set_user(&a, "54321"), 0);
	assert_true(a.has_user && !a.has_group && a.user == 54321);
	assert_int_equal(account_set_group(&a, "54322"), 0);
	assert_true(a.has_group && a.group == 54322);
	assert_int_equal(account_set_user(&a, "root"), 0);
	assert_int_equal(account_set_group(&a, "root"), 0);
	assert_true(a.user == 0 && a.group == 0);
	assert_int_equal(account_set_user(&a, "4294967294"), 0);
}

static void others_are_refused(void **state)
{
	/* The last number means "unchanged" to the kernel. */
	static const char *const wrong[] = {"4294967295", "99999999999",    "-1", "1x",
					    "",           "no such account"};
	struct run_as a = {0};

	(void)state;
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		fail_clear();
		assert_int_equal(account_set_user(&a, wrong[i]), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
		assert_int_equal(account_set_group(&a, wrong[i]), -1);
	}
}

static void a_number_without_an_entry_needs_a_group(void **state)
{
	struct run_as a = {.has_user = true, .user = 4294967294};

	(void)state;
	assert_int_equal(account_complete(&a), -1);
	assert_non_null(strstr(failed()->text, "has no group: give a gid, too"));
	a.has_group = true;
	a.group = 54322;
	assert_int_equal(account_complete(&a), geteuid() == 0 ? 0 : -1);
	assert_int_equal(a.group_count, 0);
}

static void this_user_may_always_be_named(void **state)
{
	struct run_as a = {.has_user = true, .user = geteuid()}, nobody = {0};

	(void)state;
	a.has_group = true;
	a.group = getegid();
	assert_int_equal(account_complete(&a), 0);
	assert_int_equal(account_complete(&nobody), 0);
	assert_int_equal(account_enter(&nobody), 0);
	assert_int_equal(account_enter(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_numbers_are_taken),
		cmocka_unit_test(others_are_refused),
		cmocka_unit_test(a_number_without_an_entry_needs_a_group),
		cmocka_unit_test(this_user_may_always_be_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
