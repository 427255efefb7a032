/* SPDX-License-Identifier: Apache-2.0 */
#include "host/sysfs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char top[64];

static void make_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", top, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	fclose(f);
}

static int begin(void **state)
{
	char path[128];

	(void)state;
	snprintf(top, sizeof top, "/tmp/sysfs.XXXXXX");
	assert_non_null(mkdtemp(top));
	make_file("text", "4: ACTIVE  \nmore\n");
	make_file("number", "-17\n");
	make_file("n10", "");
	make_file("n9", "");
	snprintf(path, sizeof path, "%s/link", top);
	assert_int_equal(symlink("number", path), 0);
	return 0;
}

static void remove_tree(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", top);
	assert_int_equal(system(command), 0);
}

/* What can be read. */
static void read_all(void)
{
	static const char *const sorted[] = {"link", "n9", "n10", "number", "text"};
	struct dirent **names;
	char text[64];
	int n;

	assert_true(sysfs_text(text, sizeof text, "%s/text", top));
	assert_string_equal(text, "4: ACTIVE");
	assert_true(sysfs_text(text, 4, "%s/text", top));
	assert_string_equal(text, "4: ");
	assert_int_equal(sysfs_number(1, "%s/number", top), -17);
	assert_true(sysfs_link(text, sizeof text, "%s/link", top));
	assert_string_equal(text, "number");
	n = sysfs_names(&names, "%s", top);
	assert_int_equal(n, 5);
	for (int i = 0; i < n; i++)
		assert_string_equal(names[i]->d_name, sorted[i]);
	sysfs_names_free(names, n);
}

/* What is not there. */
static void read_nothing(void)
{
	struct dirent **names;
	char text[64] = "x";

	assert_false(sysfs_text(text, sizeof text, "%s/none", top));
	assert_string_equal(text, "");
	assert_int_equal(sysfs_number(5, "%s/none", top), 5);
	assert_int_equal(sysfs_number(6, "%s/text/", top), 6);
	assert_false(sysfs_link(text, sizeof text, "%s/none", top));
	assert_int_equal(sysfs_names(&names, "%s/none", top), 0);
	assert_null(names);
}

static void what_was_read_is_kept(void **state)
{
	(void)state;
	read_all();
	read_nothing();
	sysfs_keep();
	for (int again = 0; again < 2; again++) {
		read_all();
		read_nothing();
	}
	sysfs_freeze();
	read_all();
	remove_tree();
	read_all();
	read_nothing();
}

static void what_was_kept_can_be_forgotten(void **state)
{
	char text[64];

	(void)state;
	sysfs_forget();
	sysfs_keep();
	read_all();
	sysfs_forget();
	make_file("text", "later\n");
	assert_true(sysfs_text(text, sizeof text, "%s/text", top));
	assert_string_equal(text, "later");
	remove_tree();
	assert_false(sysfs_text(text, sizeof text, "%s/text", top));
}

static void new_files_are_not_seen(void **state)
{
	char text[64];

	(void)state;
	assert_non_null(mkdtemp(strcpy(top, "/tmp/sysfs.XXXXXX")));
	make_file("new", "1\n");
	assert_false(sysfs_text(text, sizeof text, "%s/new", top));
	remove_tree();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_was_read_is_kept, begin),
		cmocka_unit_test(new_files_are_not_seen),
		cmocka_unit_test_setup(what_was_kept_can_be_forgotten, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
