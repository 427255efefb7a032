/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "copy/walk/find.h"
#include "folder.h"

static const char *const names[] = {"a.c", "b.c", ".hidden.c", "x*y", "xzy", "sp ace", "~"};
enum { NAMES = sizeof names / sizeof *names };

static int make_files(void **state)
{
	if (folder_enter(state))
		return -1;
	for (unsigned i = 0; i < NAMES; i++) {
		int fd = open(names[i], O_CREAT | O_WRONLY, 0600);

		if (fd < 0)
			return -1;
		close(fd);
	}
	return 0;
}

static void sources_of_one_name_are_twins(void **state)
{
	char *const several[] = {(char *)"none/a.c", (char *)"./a.c",   (char *)"b.c",
				 (char *)"a.c",      (char *)"../none", (char *)"././a.c"};
	static const unsigned twins[] = {0, 0, 0, 2, 0, 2};
	struct found f;

	(void)state;
	assert_int_equal(find_sources(several, 6, true, &f), 0);
	assert_int_equal(f.count, 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(f.paths[i].twin, twins[i]);
	found_free(&f);
}

static bool do_overlap(const char *a, const char *b, const char *c)
{
	char *const three[] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b, (char *)(uintptr_t)c};
	struct found f;
	bool overlap;

	assert_int_equal(find_sources(three, 3, false, &f), 0);
	overlap = found_overlap(&f);
	found_free(&f);
	return overlap;
}

static void sources_in_other_sources_overlap(void **state)
{
	static const char *const dirs[] = {"tree", "tree/d", "tree/d/e", "tree/d-e", "tree-b"};

	(void)state;
	for (unsigned i = 0; i < sizeof dirs / sizeof *dirs; i++)
		assert_int_equal(mkdir(dirs[i], 0700), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(mknod(i ? "tree.d" : "tree/f", S_IFREG | 0600, 0), 0);
	assert_int_equal(symlink("tree", "to-tree"), 0);
	assert_false(do_overlap("a.c", "b.c", "none/a.c"));
	assert_false(do_overlap("tree", "tree-b", "tree.d"));
	assert_false(do_overlap("tree/d/e", "tree/d-e", "tree/f"));
	assert_false(do_overlap("tree/none", "tree/none", "tree/none"));
	assert_true(do_overlap("tree", "tree-b", "tree/f"));
	assert_true(do_overlap("tree/d/e", "tree/d-e", "tree/d/"));
	assert_true(do_overlap("tree/../a.c", "b.c", "./a.c"));
	assert_true(do_overlap("tree/d", "tree-b", "to-tree/d/e"));
	assert_true(do_overlap("tree-b", "/", "none"));
}

/* The matches of one name, joined: "a.c b.c", with a "!" before a missing one. */
static void assert_found(const char *name, bool expand, const char *should)
{
	char is[NAME_MAX + 8] = "";
	char *const one[] = {(char *)(uintptr_t)name};
	struct found f;

	assert_int_equal(find_sources(one, 1, expand, &f), 0);
	for (unsigned i = 0; i < f.count; i++) {
		assert_int_equal(f.paths[i].want, 0);
		snprintf(is + strlen(is), sizeof is - strlen(is), "%s%s%s", i ? "|" : "",
			 f.paths[i].missing ? "!" : "", f.paths[i].path);
	}
	found_free(&f);
	assert_string_equal(is, should);
}

static void patterns_are_expanded_on_request(void **state)
{
	(void)state;
	assert_found("*.c", true, "a.c|b.c");
	assert_found("[ab].c", true, "a.c|b.c");
	assert_found("?.c", true, "a.c|b.c");
	assert_found("*.c", false, "!*.c");
	assert_found(".h*", true, ".hidden.c");
}

static void literal_name_wins_over_a_pattern(void **state)
{
	(void)state;
	assert_found("x*y", true, "x*y");
	assert_found("x?y", true, "x*y|xzy");
	assert_found("~", true, "~");
	assert_found("sp ace", true, "sp ace");
}

static void no_match_is_missing(void **state)
{
	(void)state;
	assert_found("*.nothing", true, "!*.nothing");
	assert_found("nothing", true, "!nothing");
	assert_found("nothing", false, "!nothing");
	assert_found("$(touch oops)", true, "!$(touch oops)");
	assert_int_equal(access("oops", F_OK), -1);
	assert_found("~no-such-user-here/x", true, "!~no-such-user-here/x");
}

static void nothing_is_in_a_directory_whose_name_is_too_long(void **state)
{
	char path[NAME_MAX + 5], missing[NAME_MAX + 6] = "!";

	(void)state;
	memset(path, 'd', NAME_MAX + 1);
	memcpy(path + NAME_MAX + 1, "/*", sizeof "/*");
	assert_found(path, true, strcat(missing, path));
}

static void order_and_want_numbers_are_kept(void **state)
{
	char *const asked[] = {(char *)(uintptr_t) "b.c", (char *)(uintptr_t) "gone",
			       (char *)(uintptr_t) "?.c"};
	struct found f;

	(void)state;
	assert_int_equal(find_sources(asked, 3, true, &f), 0);
	assert_int_equal(f.count, 4);
	assert_string_equal(f.paths[0].path, "b.c");
	assert_true(f.paths[1].missing);
	assert_int_equal(f.paths[1].want, 1);
	assert_string_equal(f.paths[2].path, "a.c");
	assert_int_equal(f.paths[2].want, 2);
	assert_int_equal(f.paths[3].want, 2);
	found_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sources_of_one_name_are_twins),
		cmocka_unit_test(sources_in_other_sources_overlap),
		cmocka_unit_test(patterns_are_expanded_on_request),
		cmocka_unit_test(literal_name_wins_over_a_pattern),
		cmocka_unit_test(no_match_is_missing),
		cmocka_unit_test(nothing_is_in_a_directory_whose_name_is_too_long),
		cmocka_unit_test(order_and_want_numbers_are_kept),
	};

	return cmocka_run_group_tests(tests, make_files, folder_leave);
}
