/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/rules/files_from.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "protocol/message.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED false
#endif

static struct files_from *listed_of(const char *const *names)
{
	struct files_from *l;

	assert_int_equal(files_from_new(&l), 0);
	for (; *names; names++)
		assert_int_equal(files_from_add(l, *names), 0);
	return l;
}

/* The tree as text: "a! b(c! d(e!))", with a ! after names that are listed themselves. */
static void print_tree(const struct files_from_node *n, char *to, size_t room)
{
	const struct files_from_node *child;
	const char *name;
	size_t at = 0;

	for (bool more = false; (child = files_from_next(n, &at, &name)); more = true) {
		snprintf(to + strlen(to), room - strlen(to), "%s%s%s", more ? " " : "", name,
			 files_from_is_named(child) ? "!" : "");
		assert_ptr_equal(files_from_child(n, name), child);
		size_t inner = 0;
		const char *first;

		if (!files_from_next(child, &inner, &first))
			continue;
		snprintf(to + strlen(to), room - strlen(to), "(");
		print_tree(child, to, room);
		snprintf(to + strlen(to), room - strlen(to), ")");
	}
}

static void assert_tree(const char *const *names, const char *should)
{
	struct files_from *l = listed_of(names);
	char is[256] = "";

	print_tree(files_from_top(l), is, sizeof is);
	assert_string_equal(is, should);
	files_from_free(l);
}
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void names_make_a_sorted_tree(void **state)
{
	(void)state;
	assert_tree(NAMES("b/d/e", "a", "b/c"), "a! b(c! d(e!))");
	assert_tree(NAMES("b/c", "b"), "b!(c!)");
	assert_tree(NAMES("b", "b/c"), "b!(c!)");
	assert_tree(NAMES("b", "b", "/b", "b/"), "b!");
	assert_tree(NAMES("a-b", "a/b", "a", "ab", "a.b"), "a!(b!) a-b! a.b! ab!");
	assert_tree(NAMES("\377", "\001", "z"), "\001! z! \377!");
	assert_tree(NAMES("z", "y", "x", "w", "v", "u", "t", "s", "r"),
		    "r! s! t! u! v! w! x! y! z!");
}

static void names_are_normalized(void **state)
{
	struct files_from *l;

	(void)state;
	assert_tree(NAMES("a//b/./c/"), "a(b(c!))");
	assert_tree(NAMES("/a", "./b", "//./c/."), "a! b! c!");
	assert_tree(NAMES("..a", "a..", "...", ".a"), "...! ..a! .a! a..!");
	l = listed_of(NAMES("a/b"));
	assert_false(files_from_is_named(files_from_top(l)));
	assert_int_equal(files_from_add(l, "."), 0);
	assert_true(files_from_is_named(files_from_top(l)));
	files_from_free(l);
	l = listed_of(NAMES(""));
	assert_true(files_from_is_named(files_from_top(l)));
	files_from_free(l);
}

static void names_outside_the_top_are_refused(void **state)
{
	static const char *const wrong[] = {"..", "../a", "a/..", "a/../b", "/..", "./../a"};
	char longest[NAME_MAX_WIRE + 1];
	struct files_from *l = listed_of(NAMES("a"));

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(files_from_add(l, wrong[i]), -1);
		assert_int_equal(failed()->code, OUT_USAGE);
	}
	memset(longest, 'n', NAME_MAX_WIRE);
	longest[NAME_MAX_WIRE] = '\0';
	assert_int_equal(files_from_add(l, longest), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	longest[NAME_MAX_WIRE - 1] = '\0';
	assert_int_equal(files_from_add(l, longest), 0);
	assert_non_null(files_from_child(files_from_top(l), longest));
	files_from_free(l);
	files_from_free(NULL);
}

static void missing_names_are_not_found(void **state)
{
	struct files_from *l = listed_of(NAMES("ab/c", "one/x", "one/y"));
	const struct files_from_node *top = files_from_top(l);

	(void)state;
	assert_null(files_from_child(top, "a"));
	assert_null(files_from_child(top, "abc"));
	assert_null(files_from_child(top, ""));
	assert_null(files_from_child(files_from_child(top, "ab"), "ab"));
	assert_null(files_from_child(files_from_child(files_from_child(top, "ab"), "c"), "c"));
	assert_null(files_from_child(files_from_child(top, "one"), "xx"));
	files_from_free(l);
}

/* Names may be added after the first lookup. */
static void list_grows_after_a_lookup(void **state)
{
	struct files_from *l;
	char name[16], is[512] = "";
	unsigned count = 0;
	size_t at = 0;
	const char *got;

	(void)state;
	assert_int_equal(files_from_new(&l), 0);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "%02u", i * 37 % 100);
		assert_int_equal(files_from_add(l, name), 0);
		assert_non_null(files_from_child(files_from_top(l), name));
	}
	while (files_from_next(files_from_top(l), &at, &got)) {
		snprintf(name, sizeof name, "%02u", count++);
		assert_string_equal(got, name);
	}
	assert_int_equal(count, 100);
	print_tree(files_from_top(l), is, sizeof is);
	files_from_free(l);
}

/* ---- by several threads, and many ---------------------------------------------------- */

enum { READERS = 4, SEVERAL = 5000 };

static void *read_all(void *arg)
{
	const struct files_from *l = arg;
	const struct files_from_node *top = files_from_top(l);
	char name[16];

	for (unsigned i = 0; i < SEVERAL; i++) {
		const struct files_from_node *dir;

		snprintf(name, sizeof name, "%u", i % 71);
		dir = files_from_child(top, name);
		snprintf(name, sizeof name, "%u", i);
		if (!dir || !files_from_child(dir, name))
			return NULL;
	}
	return arg;
}

static void many_threads_read_the_list(void **state)
{
	struct files_from *l;
	pthread_t threads[READERS];
	char name[32];

	(void)state;
	assert_int_equal(files_from_new(&l), 0);
	for (unsigned i = 0; i < SEVERAL; i++) {
		snprintf(name, sizeof name, "%u/%u", i % 71, i);
		assert_int_equal(files_from_add(l, name), 0);
	}
	for (unsigned i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_all, l), 0);
	for (unsigned i = 0; i < READERS; i++) {
		void *got;

		pthread_join(threads[i], &got);
		assert_ptr_equal(got, l);
	}
	files_from_free(l);
}

/* Names of 50 bytes, unsorted, as find prints them. */
static void name_of(char to[64], unsigned n, bool deep)
{
	if (deep)
		snprintf(to, 64, "one.name.of.50.bytes.%07u/and.its.parent.%06u", n, n);
	else
		snprintf(to, 64, "a.directory/one.name.of.fifty.bytes.%07u.%06u", n, n);
}

enum { MILLION = 1000 * 1000, ROOM_KIB = 128 << 10 };

/* Runs in a process of its own, so that its peak memory is measured alone. */
static int list_many(unsigned many, bool deep)
{
	struct files_from *l;
	struct rusage before, after;
	char name[64];
	size_t at = 0, count = 0;
	const char *got;

	getrusage(RUSAGE_SELF, &before);
	if (files_from_new(&l))
		return 1;
	for (unsigned i = 0; i < many; i++) {
		name_of(name, (unsigned)(i * UINT64_C(611953) % many), deep);
		if (strlen(name) != 50 || files_from_add(l, name))
			return 2;
	}
	while (files_from_next(files_from_top(l), &at, &got))
		count++;
	getrusage(RUSAGE_SELF, &after);
	files_from_free(l);
	if (count != (deep ? many : 1))
		return 3;
	return after.ru_maxrss - before.ru_maxrss > ROOM_KIB ? 4 : 0;
}

static void assert_fits(unsigned many, bool deep)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (!child)
		_exit(list_many(many, deep));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* Sanitizers allocate memory of their own: with them the test uses fewer names. */
static void a_million_names_fit(void **state)
{
	(void)state;
	assert_fits(SANITIZED ? MILLION / 10 : MILLION, false);
	assert_fits(SANITIZED ? MILLION / 10 : MILLION, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_make_a_sorted_tree),
		cmocka_unit_test(names_are_normalized),
		cmocka_unit_test(names_outside_the_top_are_refused),
		cmocka_unit_test(missing_names_are_not_found),
		cmocka_unit_test(list_grows_after_a_lookup),
		cmocka_unit_test(many_threads_read_the_list),
		cmocka_unit_test(a_million_names_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
