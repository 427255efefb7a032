/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pwd.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/names/name.h"
#include "copy/names/own_name.h"
#include "copy/names/taken.h"
#include "copy/names/tilde.h"

static void last_component_is_found(void **state)
{
	static const char *const rows[][2] = {
		{"a/b/c", "c"}, {"a/b//", "b"}, {"a", "a"}, {"/", ""},
		{".", ""},      {"a/.", ""},    {"", ""},   {"a/..", ".."},
	};
	char to[8];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(name_last(rows[i][0], to, sizeof to), rows[i][1]);
	assert_string_equal(name_last("a/too-long", to, sizeof to), "");
	assert_string_equal(name_relative("a/./b/./c"), "b/./c");
	assert_string_equal(name_relative("a/b"), "a/b");
}

static void plain_names_are_single_components(void **state)
{
	char name[NAME_MAX + 2];

	(void)state;
	memset(name, 'x', sizeof name);
	name[NAME_MAX + 1] = '\0';
	assert_false(name_is_plain(name));
	name[NAME_MAX] = '\0';
	assert_true(name_is_plain(name));
	assert_true(name_is_plain("...") && name_is_plain("a b"));
	assert_false(name_is_plain("") || name_is_plain(".") || name_is_plain(".."));
	assert_false(name_is_plain("a/b") || name_is_plain("/") || name_is_plain("a/"));
}

static void names_match_what_the_user_wrote(void **state)
{
	(void)state;
	assert_true(name_matches_want("c", "a/b/c"));
	assert_true(name_matches_want("x*", "a/x*"));
	assert_true(name_matches_want("xyz", "a/x*"));
	assert_true(name_matches_want("", "-"));
	assert_false(name_matches_want("b", "a/b/c"));
	assert_false(name_matches_want(".hidden", "*"));
	assert_false(name_matches_want("..", ".."));
	assert_false(name_matches_want("", "a"));
}

static void own_names_are_recognized(void **state)
{
	static const char *const of_user[] = {
		".sluice",
		".sluice.",
		".sluice.0123456789abcde",
		".sluice.0123456789ABCDEF",
		".sluice.0123456789abcdef.",
		".sluice.0123456789abcdef.0123456",
		".sluice.0123456789abcdef.012345678",
		".sluice.marker.0123456789abcdef0",
		".sluice.marker.0123456789abcdef.01234567",
		"sluice.0123456789abcdef",
	};
	char name[OWN_NAME_ROOM];

	(void)state;
	own_name_hashed(0x123456789abcdef, name);
	assert_string_equal(name, ".sluice.0123456789abcdef");
	assert_int_equal(own_name_kind(name), NAME_HASHED);
	own_name_marker(UINT64_MAX, name);
	assert_string_equal(name, ".sluice.marker.ffffffffffffffff");
	assert_int_equal(own_name_kind(name), NAME_MARKER);
	assert_int_equal(own_name_random(0, name), 0);
	assert_int_equal(own_name_kind(name), NAME_RANDOM);
	assert_int_equal(strlen(name), strlen(".sluice.0123456789abcdef.01234567"));
	for (size_t i = 0; i < sizeof of_user / sizeof *of_user; i++)
		assert_int_equal(own_name_kind(of_user[i]), NAME_OF_USER);
}

static void taken_names_are_sorted_and_found(void **state)
{
	static const char *const names[] = {"c", "a", "a", "b", "a"};
	struct taken t = TAKEN_NONE;

	(void)state;
	assert_false(taken_has(&t, "a"));
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_int_equal(taken_add(&t, names[i]), 0);
	taken_sort(&t);
	assert_int_equal(t.count, 3);
	assert_true(taken_has(&t, "a") && taken_has(&t, "b") && taken_has(&t, "c"));
	assert_false(taken_has(&t, "") || taken_has(&t, "aa") || taken_has(&t, "d"));
	taken_free(&t);
	assert_int_equal(t.count, 0);
}

static void tilde_expands_to_a_home_directory(void **state)
{
	struct passwd *root = getpwnam("root");
	struct passwd *me = getpwuid(geteuid());
	char is[256], should[256];

	(void)state;
	assert_non_null(root);
	assert_int_equal(tilde_expand("~root/x/y", is, sizeof is), 0);
	snprintf(should, sizeof should, "%s/x/y", root->pw_dir);
	assert_string_equal(is, should);
	assert_int_equal(setenv("HOME", "/some/where", 1), 0);
	assert_int_equal(tilde_expand("~/x", is, sizeof is), 0);
	assert_string_equal(is, "/some/where/x");
	assert_int_equal(unsetenv("HOME"), 0);
	if (me) {
		assert_int_equal(tilde_expand("~", is, sizeof is), 0);
		assert_string_equal(is, me->pw_dir);
	}
	assert_int_equal(tilde_expand("a~b/~", is, sizeof is), 0);
	assert_string_equal(is, "a~b/~");
	assert_int_equal(tilde_expand("~no-such-user-here/x", is, sizeof is), -1);
	assert_int_equal(failed()->code, OUT_NO_SOURCE);
	assert_int_equal(tilde_expand("too long", is, 5), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(last_component_is_found),
		cmocka_unit_test(plain_names_are_single_components),
		cmocka_unit_test(names_match_what_the_user_wrote),
		cmocka_unit_test(own_names_are_recognized),
		cmocka_unit_test(taken_names_are_sorted_and_found),
		cmocka_unit_test(tilde_expands_to_a_home_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
