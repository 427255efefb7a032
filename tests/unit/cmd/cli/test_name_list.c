/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of names and of patterns: which names they hold, in which order, and which bytes are
 * rejected.
 */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "cmd/cli/name_list.h"
#include "cmd/cli/rule_list.h"

static char path[] = "/tmp/sluice-names-XXXXXX";

static int setup(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	close(fd);
	return fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	return unlink(path);
}

static void fill(const void *bytes, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* All names, each followed by a |. */
static char joined[1 << 16];

static int join(void *ctx, const char *name)
{
	(void)ctx;
	assert_true(strlen(joined) + strlen(name) + 2 < sizeof joined);
	strcat(joined, name);
	strcat(joined, "|");
	return 0;
}

static int read_names(bool nul)
{
	struct name_list *l;
	int rc;

	joined[0] = '\0';
	assert_int_equal(name_list_open(path, nul, &l), 0);
	while ((rc = name_list_read(l, join, NULL)) > 0)
		continue;
	name_list_close(l);
	return rc;
}

#define names_are(text, nul, want)                                                                 \
	do {                                                                                       \
		fill(text, sizeof text - 1);                                                       \
		assert_int_equal(read_names(nul), 0);                                              \
		assert_string_equal(joined, want);                                                 \
	} while (0)

static void lines_are_names(void **state)
{
	(void)state;
	names_are("", false, "");
	names_are("a\nb c\n", false, "a|b c|");
	names_are("a\nlast", false, "a|last|");
	names_are("a\r\nb\r\n", false, "a|b|");
	names_are("\n\na\n\n", false, "a|");
	names_are("# no\n;no\n#\na#\n", false, "a#|");
	names_are(" a \n", false, " a |");
}

static void from0_names_end_with_nul(void **state)
{
	(void)state;
	names_are("a\0b\nc\0", true, "a|b\nc|");
	names_are("#a\0;b\0\r\0c", true, "#a|;b|\r|c|");
	names_are("\0\0a\0\0", true, "a|");
}

static int count_in_order(void *ctx, const char *name)
{
	unsigned *n = ctx;
	char want[32];

	snprintf(want, sizeof want, "name-%u", *n);
	assert_string_equal(name, want);
	++*n;
	return 0;
}

/* Names span the pieces in which the file is read. */
static void long_lists_are_read_completely(void **state)
{
	static char text[300000];
	unsigned written = 0, taken = 0;
	size_t len = 0;
	struct name_list *l;
	int rc;

	(void)state;
	while (len < sizeof text - 32)
		len += (size_t)sprintf(text + len, "name-%u", written++) + 1;
	fill(text, len);
	assert_int_equal(name_list_open(path, true, &l), 0);
	while ((rc = name_list_read(l, count_in_order, &taken)) > 0)
		continue;
	name_list_close(l);
	assert_int_equal(rc, 0);
	assert_int_equal(taken, written);
}

static void bad_names_are_refused(void **state)
{
	static char longest[5000];

	(void)state;
	fill("a\0b\n", 4);
	assert_int_equal(read_names(false), -1);
	assert_non_null(strstr(failed()->text, "--from0"));
	memset(longest, 'x', sizeof longest);
	fill(longest, sizeof longest);
	assert_int_equal(read_names(false), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	longest[4095] = '\n';
	fill(longest, 4096);
	assert_int_equal(read_names(false), 0);
	assert_int_equal(strlen(joined), 4096);
}

static void missing_list_file_is_a_usage_error(void **state)
{
	struct name_list *l;

	(void)state;
	assert_int_equal(name_list_open("/nonexistent/list", false, &l), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
}

static void patterns_keep_their_order(void **state)
{
	struct option_pattern given[] = {
		{.include = true, .text = "first"},
		{.from_file = true, .text = path},
		{.text = "last"},
	};
	struct options o = {.patterns = given, .pattern_count = 3};
	struct rule_list l = {0};

	(void)state;
	fill("+ one\n# no\ntwo\n", 15);
	assert_int_equal(rule_list_read(&o, &l), 0);
	assert_int_equal(l.count, 4);
	assert_true(l.of[0].include);
	assert_string_equal(l.of[0].pattern, "first");
	/* The filter parses what precedes a pattern. */
	assert_string_equal(l.of[1].pattern, "+ one");
	assert_false(l.of[1].include || l.of[2].include);
	assert_string_equal(l.of[2].pattern, "two");
	assert_string_equal(l.of[3].pattern, "last");
	rule_list_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_names),
		cmocka_unit_test(from0_names_end_with_nul),
		cmocka_unit_test(long_lists_are_read_completely),
		cmocka_unit_test(bad_names_are_refused),
		cmocka_unit_test(missing_list_file_is_a_usage_error),
		cmocka_unit_test(patterns_keep_their_order),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
