/* SPDX-License-Identifier: Apache-2.0 */
/* --module of rdcpd. */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "cmd/serve/module.h"

static void check(const char *text, const char *name, const char *path, bool may_read,
		  bool may_write)
{
	struct module m;

	if (module_parse(text, &m))
		fail_msg("%s: %s", text, failed()->text);
	assert_string_equal(m.name, name);
	assert_string_equal(m.path, path);
	assert_int_equal(m.may_read, may_read);
	assert_int_equal(m.may_write, may_write);
}

static void access_follows_the_path(void **state)
{
	(void)state;
	check("data=/srv", "data", "/srv", true, false);
	check("data=/srv:ro", "data", "/srv", true, false);
	check("data=/srv:rw", "data", "/srv", true, true);
	check("data=/srv:wo", "data", "/srv", false, true);
	check("data=/srv:x", "data", "/srv:x", true, false);
	check("data=/srv:ro:rw", "data", "/srv:ro", true, true);
	check("a.b-c_9=x=y", "a.b-c_9", "x=y", true, false);
}

static void refused(const char *text)
{
	struct module m;

	fail_clear();
	assert_int_equal(module_parse(text, &m), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
}

static void malformed_modules_are_refused(void **state)
{
	char longest[2 * PATH_MAX];

	(void)state;
	refused("");
	refused("data");
	refused("=x");
	refused("data=");
	refused("data=:rw");
	refused(".x=y");
	refused("-x=y");
	refused("a/b=y");
	refused("a b=y");
	memset(longest, 'n', sizeof longest);
	strcpy(longest + MODULE_NAME_MAX, "=x");
	refused(longest);
	memset(longest, 'n', sizeof longest);
	longest[1] = '=';
	longest[sizeof longest - 1] = '\0';
	refused(longest);
}

static void modules_are_found_by_name(void **state)
{
	const struct module list[] = {{.name = "a"}, {.name = "ab"}};

	(void)state;
	assert_ptr_equal(module_find(list, 2, "ab"), &list[1]);
	assert_null(module_find(list, 1, "ab"));
	assert_null(module_find(list, 2, ""));
}

static void only_directories_below_the_root_are_served(void **state)
{
	struct module m = {.name = "m", .path = "."};

	(void)state;
	assert_int_equal(module_open(&m), 0);
	assert_int_equal(m.path[0], '/');
	strcpy(m.path, "/");
	assert_int_equal(module_open(&m), -1);
	strcpy(m.path, "/etc/..");
	assert_int_equal(module_open(&m), -1);
	strcpy(m.path, "/dev/null");
	assert_int_equal(module_open(&m), -1);
	strcpy(m.path, "no/such/name");
	assert_int_equal(module_open(&m), -1);
}

static void clients_without_a_key_need_the_permission(void **state)
{
	struct module m = {.name = "m", .may_read = true, .may_write = true, .may_delete = true};
	const union address from = {.in4 = {.sin_family = AF_INET}};

	(void)state;
	fail_clear();
	assert_int_equal(module_admit(&m, ANONYMOUS_USER, &from), -1);
	assert_int_equal(failed()->code, OUT_AUTH);
	m.anonymous = true;
	assert_int_equal(module_admit(&m, ANONYMOUS_USER, &from), 0);
	strcpy(m.users, "alice");
	assert_int_equal(module_admit(&m, ANONYMOUS_USER, &from), 0);
	assert_int_equal(module_admit(&m, "alice", &from), 0);
	assert_int_equal(module_admit(&m, "-", &from), -1);
	assert_int_equal(module_admit(&m, "bob", &from), -1);
}

static void expect_rights(const struct module *m, const char *user, const char *rights)
{
	struct module_rights may = module_rights(m, user);
	char text[5] = {may.read ? 'r' : '-', may.write ? 'w' : '-', may.delete ? 'd' : '-',
			may.remove ? 'm' : '-'};

	assert_string_equal(text, rights);
}

static void clients_without_a_key_may_do_less(void **state)
{
	struct module m = {.may_read = true, .may_write = true, .may_delete = true};

	(void)state;
	m.may_remove = m.anonymous = true;
	expect_rights(&m, "alice", "rwdm");
	expect_rights(&m, "-", "rwdm");
	expect_rights(&m, ANONYMOUS_USER, "r---");
	m.anonymous_writes = true;
	expect_rights(&m, ANONYMOUS_USER, "rw--");
	m.may_write = false;
	expect_rights(&m, ANONYMOUS_USER, "r---");
	m.may_read = false;
	m.may_write = true;
	expect_rights(&m, ANONYMOUS_USER, "-w--");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(access_follows_the_path),
		cmocka_unit_test(malformed_modules_are_refused),
		cmocka_unit_test(modules_are_found_by_name),
		cmocka_unit_test(clients_without_a_key_need_the_permission),
		cmocka_unit_test(clients_without_a_key_may_do_less),
		cmocka_unit_test(only_directories_below_the_root_are_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
