/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file of rdcpd. */
#include "base/fail.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/log.h"
#include "cmd/serve/config.h"
#include "folder.h"

static struct config c;
static char logged[4096];

static void keep_line(enum log_level level, const char *line)
{
	size_t used = strlen(logged);

	(void)level;
	snprintf(logged + used, sizeof logged - used, "%s\n", line);
}

static int parse(const char *text)
{
	int fd = open("conf", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	memset(&c, 0, sizeof c);
	config_init(&c);
	logged[0] = '\0';
	fail_clear();
	log_to(keep_line);
	rc = config_read("conf", &c);
	log_to(NULL);
	return rc;
}

/* One error, of this line. */
static void expect_error(const char *text, unsigned line, const char *why)
{
	char head[32];

	snprintf(head, sizeof head, "conf:%u: ", line);
	assert_int_equal(parse(text), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	assert_string_equal(failed()->text, "conf has 1 error");
	if (strncmp(logged, head, strlen(head)) != 0 || !strstr(logged, why))
		fail_msg("%s, line %u: %s", why, line, logged);
}

static void a_file_without_keys_changes_nothing(void **state)
{
	(void)state;
	assert_int_equal(parse(""), 0);
	assert_int_equal(parse("# comment\n ; comment\n\n"), 0);
	assert_int_equal(c.module_count, 0);
	assert_int_equal(c.drain_s, DRAIN_S);
	assert_false(c.has_port);
}

static void keys_belong_to_their_section(void **state)
{
	(void)state;
	assert_int_equal(parse("Hosts_Allow = 10.0.0.1\ndrain  limit=7\nport = 0\n"
			       "[a]\npath = /a\nhosts allow = 10.0.0.2, 10.0.0.3\n"
			       "[b]\npath = /b\nread only = no\n"),
			 0);
	assert_int_equal(c.allow.count, 1);
	assert_int_equal(c.deny.count, 0);
	assert_int_equal(c.drain_s, 7);
	assert_true(c.has_port);
	assert_int_equal(c.module_count, 2);
	assert_int_equal(c.modules[0].allow.count, 2);
	assert_int_equal(c.modules[1].allow.count, 0);
	assert_false(c.modules[0].may_write);
	assert_true(c.modules[1].may_write);
}

static void keys_of_a_module_are_taken(void **state)
{
	const struct module *m = c.modules;

	(void)state;
	assert_int_equal(parse("[m]\npath = /m\nread only = no\nanonymous = yes\n"
			       "anonymous write = TRUE\nusers = alice,bob\n"
			       "incoming chmod = D750,F640\nrefuse options = delete\n"),
			 0);
	assert_true(m->anonymous && m->anonymous_writes && m->list && m->may_read);
	assert_false(m->may_delete || m->may_remove || m->must_encrypt || m->fsync);
	assert_string_equal(m->users, "alice bob");
	assert_string_equal(m->incoming_chmod, "D750,F640");
	assert_true(m->refused);
}

static void errors_name_their_line(void **state)
{
	(void)state;
	expect_error("x = 1\n", 1, "unknown key \"x\"");
	expect_error("port = 1\nport = 2\n", 2, "\"port\" is given twice");
	expect_error("path = /a\n", 1, "belongs below a [MODULE]");
	expect_error("[a]\npath = /a\ndrain limit = 1\n", 3, "belongs above the first [MODULE]");
	expect_error("drain limit = -1\n", 1, "is no number of seconds");
	expect_error("transport = ssh\n", 1, "ssh is no transport");
	expect_error("[a]\n\n", 2, "module a has no path");
	expect_error("[a]\npath = /a\nincoming chmod = u\n", 3, "u is no change of modes");
	expect_error("[a]\npath = /a\nrefuse options = x\n", 3, "x is no option");
	expect_error("[a]\npath = /a\nanonymous write = yes\n", 3, "\"read only = no\"");
}

static void each_error_is_reported(void **state)
{
	(void)state;
	assert_int_equal(parse("x = 1\n[a]\npath = /a\nlist = 2\n[a/b]\ny = 1\n"), -1);
	assert_string_equal(failed()->text, "conf has 4 errors");
	assert_non_null(strstr(logged, "conf:1: "));
	assert_non_null(strstr(logged, "conf:4: "));
	assert_non_null(strstr(logged, "conf:5: "));
	assert_non_null(strstr(logged, "conf:6: "));
}

static void keys_below_a_wrong_section_are_only_checked(void **state)
{
	(void)state;
	expect_error("[a]\npath = /a\nlist = no\n[b/c]\npath = /b\nlist = yes\n", 4,
		     "is no [MODULE]");
	assert_string_equal(c.modules[0].path, "/a");
	assert_false(c.modules[0].list);
	expect_error("port = 7\n[b/c]\nread only = no\n", 2, "is no [MODULE]");
	expect_error("[abc]\npath = /a\n[abc]\npath = /b\n[x]\npath = /x\n", 3, "is given twice");
	assert_int_equal(c.module_count, 2);
	assert_string_equal(c.modules[0].path, "/a");
	assert_string_equal(c.modules[1].name, "x");
	assert_int_equal(parse("[b/c]\nlist = 2\nlist = no\nport = 1\n"), -1);
	assert_string_equal(failed()->text, "conf has 4 errors");
}

static void files_that_others_may_write_are_refused(void **state)
{
	(void)state;
	assert_int_equal(parse(""), 0);
	assert_int_equal(chmod("conf", 0620), 0);
	assert_int_equal(config_read("conf", &c), -1);
	assert_int_equal(failed()->code, OUT_USAGE);
	assert_int_equal(chmod("conf", 0602), 0);
	assert_int_equal(config_read("conf", &c), -1);
	assert_int_equal(config_read(".", &c), -1);
	assert_int_equal(config_read("none", &c), -1);
	assert_int_equal(failed()->code, OUT_FILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_without_keys_changes_nothing),
		cmocka_unit_test(keys_belong_to_their_section),
		cmocka_unit_test(keys_of_a_module_are_taken),
		cmocka_unit_test(errors_name_their_line),
		cmocka_unit_test(each_error_is_reported),
		cmocka_unit_test(keys_below_a_wrong_section_are_only_checked),
		cmocka_unit_test(files_that_others_may_write_are_refused),
	};

	return cmocka_run_group_tests(tests, folder_enter, folder_leave);
}
