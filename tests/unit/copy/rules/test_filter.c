/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/rules/filter.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "protocol/message.h"

/* Rules separated by commas, each a + or a - followed by the pattern. */
static struct filter *filter_of(const char *rules)
{
	struct filter *f;
	char copy[256], *left = copy;

	snprintf(copy, sizeof copy, "%s", rules);
	assert_int_equal(filter_new(&f), 0);
	for (char *one; (one = strsep(&left, ","));)
		assert_int_equal(filter_add(f, one[0] == '+', one + 1), 0);
	return f;
}

struct sample {
	const char *rules, *path;
	bool dir, excluded;
};

static void assert_samples(const struct sample *s, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct filter *f = filter_of(s[i].rules);
		bool is = filter_excludes(f, s[i].path, s[i].dir);

		if (is != s[i].excluded)
			print_error("%s: %s\n", s[i].rules, s[i].path);
		assert_int_equal(is, s[i].excluded);
		filter_free(f);
	}
}
#define ASSERT_SAMPLES(a) assert_samples(a, sizeof(a) / sizeof *(a))

static void first_match_decides(void **state)
{
	static const struct sample samples[] = {
		{"-a", "a", false, true},          {"-a", "b", false, false},
		{"+a,-*", "a", false, false},      {"+a,-*", "b", false, true},
		{"-a,+a", "a", false, true},       {"+*.c,-*", "x/y.c", false, false},
		{"+*/,+*.c,-*", "x", true, false}, {"+*/,+*.c,-*", "x", false, true},
	};

	(void)state;
	ASSERT_SAMPLES(samples);
	assert_false(filter_excludes(NULL, "a", false));
}

static void slashes_anchor_patterns(void **state)
{
	static const struct sample samples[] = {
		{"-b", "a/b", false, true},         {"-b", "a/bb", false, false},
		{"-b", "b/a", false, false},        {"-/b", "a/b", false, false},
		{"-/b", "b", false, true},          {"-a/b", "a/b", false, true},
		{"-a/b", "x/a/b", false, true},     {"-a/b", "xa/b", false, false},
		{"-a/b", "b", false, false},        {"-/a/b", "x/a/b", false, false},
		{"-b/", "a/b", true, true},         {"-b/", "a/b", false, false},
		{"-/a*/b?", "ac/bd", false, true},  {"-/a*/b?", "x/ac/bd", false, false},
		{"-a*/b?", "x/ac/bd", false, true}, {"-a*/b?", "x/c/ac/bd", false, true},
		{"-a*/b?", "bd", false, false},     {"-/", "a", true, false},
		{"-a//", "a", true, false},
	};

	(void)state;
	ASSERT_SAMPLES(samples);
}

static void wildcards_match_as_rsync(void **state)
{
	static const struct sample samples[] = {
		{"-*", "a", false, true},
		{"-a*", "a", false, true},
		{"-a*c", "abbc", false, true},
		{"-a*c", "abbcd", false, false},
		{"-/a*c", "a/c", false, false},
		{"-/a**c", "a/b/c", false, true},
		{"-a**c", "x/a/b/c", false, true},
		{"-a**c", "xa/b/c", false, false},
		{"-**c", "xa/bc", false, true},
		{"-**/c", "c", false, true},
		{"-**/c", "a/b/c", false, true},
		{"-**/c", "a/bc", false, false},
		{"-/**/c", "c", false, false},
		{"-/**/c", "a/c", false, true},
		{"-a/**", "a", true, false},
		{"-a/**", "x/a/b/c", false, true},
		{"-a/***", "a", true, true},
		{"-a/***", "a", false, false},
		{"-a/***", "a/b/c", false, true},
		{"-/a/***", "x/a/b", false, false},
		{"-a/*/c", "a/b/c", false, true},
		{"-a/*/c", "a/b/b/c", false, false},
		{"-***", "a/b", false, true},
		{"-*a*", "bab", false, true},
		{"-*a*", "bb", false, false},
		{"-?", "\303\244", false, false}, /* bytes, not characters */
		{"-??", "\303\244", false, true},
	};

	(void)state;
	ASSERT_SAMPLES(samples);
}

static void sets_and_escapes_match(void **state)
{
	static const struct sample samples[] = {
		{"-[ab]", "b", false, true},         {"-[ab]", "c", false, false},
		{"-[!ab]", "c", false, true},        {"-[^ab]", "a", false, false},
		{"-[]x]", "]", false, true},         {"-[!]x]", "]", false, false},
		{"-[a-c]", "b", false, true},        {"-[a-c]", "-", false, false},
		{"-[a-]", "-", false, true},         {"-[-a]", "-", false, true},
		{"-[\\]]", "]", false, true},        {"-[a-\\]]", "b", false, false},
		{"-[\\a-c]", "b", false, true},      {"-/x[^a]y", "x/y", false, false},
		{"-/x[!-~]y", "x/y", false, false},  {"-[[:digit:]x]", "7", false, true},
		{"-[[:digit:]x]", "x", false, true}, {"-[[:digit:]x]", "y", false, false},
		{"-[![:alpha:]]", "7", false, true}, {"-[[:nonsense:]]", "n", false, false},
		{"-[[:digit]", "[", false, true},    {"-[[:digit]", "d", false, true},
		{"-[a", "[a", false, false},         {"-\\*", "*", false, true},
		{"-\\*", "a", false, false},         {"-\\a*", "ab", false, true},
		{"-\\a", "\\a", false, true}, /* without a wildcard the pattern is literal */
		{"-\\a", "a", false, false},         {"-*\\", "a\\", false, false},
	};

	(void)state;
	ASSERT_SAMPLES(samples);
}

static void character_classes_are_ascii(void **state)
{
	static const struct {
		const char *name;
		int (*is)(int c);
	} classes[] = {
		{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
		{"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
		{"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit},
	};

	(void)state;
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
		char rule[32];
		struct filter *f;

		snprintf(rule, sizeof rule, "-[[:%s:]]", classes[i].name);
		f = filter_of(rule);
		for (int c = 1; c < 256; c++) {
			char name[2] = {(char)c, '\0'};
			bool should = c != '/' && classes[i].is(c);

			if (filter_excludes(f, name, false) != should)
				print_error("%s of byte %d\n", rule, c);
			assert_int_equal(filter_excludes(f, name, false), should);
		}
		filter_free(f);
	}
}

static void prefixes_and_clearing_work(void **state)
{
	static const struct sample samples[] = {
		{"-+ a,-*", "a", false, false},  {"+- a", "a", false, true},
		{"-a,-!,-b", "a", false, false}, {"-a,-!,-b", "b", false, true},
		{"-!a", "!a", false, true},      {"-- !", "!", false, true},
		{"-", "a", false, false},
	};
	struct filter *f;

	(void)state;
	ASSERT_SAMPLES(samples);
	f = filter_of("-a");
	assert_int_equal(filter_add(f, false, "+ "), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	filter_free(f);
	filter_free(NULL);
}

static void pattern_length_is_bounded(void **state)
{
	char pattern[RULE_TEXT_MAX + 1];
	struct filter *f = filter_of("-a");

	(void)state;
	memset(pattern, 'p', RULE_TEXT_MAX);
	pattern[RULE_TEXT_MAX] = '\0';
	assert_int_equal(filter_add(f, false, pattern), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	pattern[RULE_TEXT_MAX - 1] = '\0';
	assert_int_equal(filter_add(f, false, pattern), 0);
	assert_true(filter_excludes(f, pattern, false));
	pattern[100] = 'q';
	assert_false(filter_excludes(f, pattern, false));
	filter_free(f);
}

/*
 * Patterns on which a backtracking matcher takes exponential time. The unit test's timeout is the
 * limit.
 */
static void hostile_patterns_take_bounded_time(void **state)
{
	static const char *const units[] = {"*a", "**a", "a*", "*?", "*[!b]", "**/", "*a/**"};
	char *path = malloc(8192);

	(void)state;
	assert_non_null(path);
	for (int i = 0; i < 8191; i++)
		path[i] = i % 64 == 63 ? '/' : 'a';
	path[8191] = '\0';
	for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
		for (int anchored = 0; anchored < 2; anchored++) {
			char pattern[RULE_TEXT_MAX] = "/";
			size_t at = (size_t)anchored;
			struct filter *f = filter_of("-zzz");

			while (at + strlen(units[u]) + 2 < 1024)
				at += (size_t)sprintf(pattern + at, "%s", units[u]);
			snprintf(pattern + at, sizeof pattern - at, "*b*");
			assert_int_equal(filter_add(f, false, pattern), 0);
			assert_false(filter_excludes(f, path, false));
			filter_free(f);
		}
	}
	free(path);
}

static void paths_may_be_of_any_length(void **state)
{
	enum { DEEP = 1 << 20 };
	char *path = malloc(DEEP + 8);
	struct filter *f = filter_of("-q/**/end,-/**/x");

	(void)state;
	assert_non_null(path);
	for (int i = 0; i < DEEP; i++)
		path[i] = i % 2 ? '/' : 'a';
	strcpy(path + DEEP, "end");
	assert_false(filter_excludes(f, path, false));
	path[2] = 'q';
	assert_true(filter_excludes(f, path, false));
	strcpy(path + DEEP, "x");
	assert_true(filter_excludes(f, path, false));
	filter_free(f);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_match_decides),
		cmocka_unit_test(slashes_anchor_patterns),
		cmocka_unit_test(wildcards_match_as_rsync),
		cmocka_unit_test(sets_and_escapes_match),
		cmocka_unit_test(character_classes_are_ascii),
		cmocka_unit_test(prefixes_and_clearing_work),
		cmocka_unit_test(pattern_length_is_bounded),
		cmocka_unit_test(hostile_patterns_take_bounded_time),
		cmocka_unit_test(paths_may_be_of_any_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
