/* SPDX-License-Identifier: Apache-2.0 */
/* host:path, and names that only look like it. */
#include "base/fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <fcntl.h>
#include "cmd/cli/operand.h"

static void check(const char *text, const char *host, const char *path)
{
	struct operand t;

	if (operand_parse(text, &t))
		fail_msg("%s: %s", text, failed()->text);
	assert_false(t.stdio);
	assert_string_equal(t.host, host);
	assert_string_equal(t.path, path);
}

static void local_names_are_recognized(void **state)
{
	(void)state;
	check("a", "", "a");
	check("./a:b", "", "./a:b");
	check("/a:b", "", "/a:b");
	check("a/b:c", "", "a/b:c");
	check(":a", "", ":a");
	check("-x", "", "-x");
	check("[a]", "", "[a]");
	check("[a]/b:c", "", "[a]/b:c");
	check("dir@x/file:y", "", "dir@x/file:y");
}

static void remote_names_are_split(void **state)
{
	(void)state;
	check("h:a", "h", "a");
	check("h:", "h", "");
	check("h:/a:b", "h", "/a:b");
	check("u@h:a", "u@h", "a");
	check("[::1]:a", "::1", "a");
	check("u@[fe80::1%eth0]:/x", "u@fe80::1%eth0", "/x");
	check("h:-x", "h", "-x");
	check("h:a b'c", "h", "a b'c");
	check("h:12:30.log", "h", "12:30.log");
	check("h:./:x", "h", "./:x");
	check("h:./10470:/p", "h", "./10470:/p");
	check("10.0.0.1:x", "10.0.0.1", "x");
}

static void modules_of_a_daemon_are_hosts(void **state)
{
	struct daemon_url u;
	const char *rest;

	(void)state;
	check("rdma://h/m", "rdma://h/m", "");
	check("rdma://h/m/", "rdma://h/m", "");
	check("RDMA://h/m//a/b", "rdma://h/m", "a/b");
	check("rdma://h:10470/m/a:b/", "rdma://h:10470/m", "a:b/");
	check("rdma://alice@h/m/a", "rdma://alice@h/m", "a");
	check("rdma://a.b@[::1]:7/m/@", "rdma://a.b@[::1]:7/m", "@");
	check("rdma://[::1]/m/a", "rdma://[::1]/m", "a");
	check("rdma://[::1]:7/m/a", "rdma://[::1]:7/m", "a");
	assert_int_equal(operand_parse_daemon("rdma://[::1]:7/m", &u, &rest), 0);
	assert_string_equal(u.host, "::1");
	assert_string_equal(u.module, "m");
	assert_int_equal(u.port, 7);
	assert_true(operand_is_daemon("rdma://x"));
	assert_false(operand_is_daemon("rdma:/x"));
}

static void listed(const char *text, const char *host, unsigned port, const char *module,
		   const char *path)
{
	struct daemon_url u;
	const char *rest;

	assert_int_equal(operand_parse_listing(text, &u, &rest), 0);
	assert_string_equal(u.host, host);
	assert_int_equal(u.port, port);
	assert_string_equal(u.module, module);
	assert_string_equal(rest, path);
}

static void a_listing_needs_no_module(void **state)
{
	struct daemon_url u;
	const char *rest;

	(void)state;
	listed("rdma://h", "h", 0, "", "");
	listed("rdma://h/", "h", 0, "", "");
	listed("rdma://[::1]:7/", "::1", 7, "", "");
	listed("rdma://h/m", "h", 0, "m", "");
	listed("rdma://h/m/d/", "h", 0, "m", "d/");
	listed("rdma://h/m/100% ?#", "h", 0, "m", "100% ?#");
	assert_int_equal(operand_parse_listing("rdma://", &u, &rest), -1);
	assert_int_equal(operand_parse_listing("rdma:///d", &u, &rest), -1);
	assert_int_equal(operand_parse_listing("rdma://h//d", &u, &rest), -1);
	assert_int_equal(operand_parse_listing("rdma://h:x", &u, &rest), -1);
}

static void refused(const char *text, const char *why)
{
	struct operand t;

	fail_clear();
	if (!operand_parse(text, &t))
		fail_msg("%s was taken", text);
	assert_int_equal(failed()->code, OUT_USAGE);
	if (!strstr(failed()->text, why))
		fail_msg("%s: %s", text, failed()->text);
}

static void malformed_targets_are_refused(void **state)
{
	char longest[2 * HOST_MAX];

	(void)state;
	refused("", "empty");
	refused("rdma://", "expected rdma://HOST");
	refused("rdma://h", "the module is missing");
	refused("rdma://h/", "the module is missing");
	refused("rdma://h//p", "the module is missing");
	refused("rdma://fe80::1/m", "in brackets");
	refused("rdcp://h/m", "rdma://HOST");
	refused("rdma:///m", "expected rdma://HOST");
	refused("rdma://h:0/m", "expected rdma://HOST");
	refused("rdma://h:65536/m", "expected rdma://HOST");
	refused("rdma://h:/m", "expected rdma://HOST");
	refused("rdma://[::1/m", "expected rdma://HOST");
	refused("rdma://@h/m", "expected rdma://");
	refused("rdma://-@h/m", "expected rdma://");
	refused("rdma://a b@h/m", "expected rdma://");
	refused("rdma://u@/m", "expected rdma://");
	refused("rdma://h/a b/c", "expected rdma://");
	refused("rdma://h/a@b/c", "expected rdma://");
	refused("rdma://a b/m", "blank");
	refused("rdma://-h/m", "may not begin with '-'");
	refused("rsync://h/m/p", "HOST:PATH");
	refused("scp://u@h:22/p", "HOST:PATH");
	refused("h::module/p", "h:./:module/p");
	refused("u@h:10470:/p/q", "use u@h:/p/q");
	refused("-oProxyCommand=x:y", "may not begin with '-'");
	refused("u@-h:y", "may not begin with '-'");
	refused("-u@h:y", "may not begin with '-'");
	refused("u@:y", "no host");
	refused("[]:y", "no host");
	refused("a b:y", "blank");
	refused("a\nb:y", "blank");
	memset(longest, 'h', sizeof longest - 1);
	longest[sizeof longest - 2] = ':';
	longest[sizeof longest - 1] = '\0';
	refused(longest, "too long");
}

static void dash_is_stdio(void **state)
{
	struct operand t;

	(void)state;
	assert_int_equal(operand_parse("-", &t), 0);
	assert_true(t.stdio);
	assert_string_equal(t.host, "");
	assert_int_equal(operand_parse("./-", &t), 0);
	assert_false(t.stdio);
}

/* /dev/fd names stand for open descriptors only, and not for directories. */
static void descriptor_names_are_recognized(void **state)
{
	char name[64];
	int pipe_fds[2], dir, fd;

	(void)state;
	assert_int_equal(descriptor_named("/dev/stdout"), 1);
	assert_int_equal(descriptor_named("/dev/fd/17"), 17);
	assert_int_equal(descriptor_named("/proc/self/fd/3"), 3);
	assert_int_equal(descriptor_named("/dev/fd/x"), -1);
	assert_int_equal(descriptor_named("/dev/fd/3/x"), -1);
	assert_int_equal(descriptor_named("dev/fd/3"), -1);
	assert_int_equal(operand_descriptor("out", &fd), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(pipe(pipe_fds), 0);
	snprintf(name, sizeof name, "/dev/fd/%d", pipe_fds[1]);
	assert_int_equal(operand_descriptor(name, &fd), 0);
	assert_int_equal(fd, pipe_fds[1]);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	assert_int_equal(operand_descriptor(name, &fd), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	dir = open("/", O_RDONLY | O_DIRECTORY);
	assert_true(dir >= 0);
	snprintf(name, sizeof name, "/dev/fd/%d", dir);
	assert_int_equal(operand_descriptor(name, &fd), 0);
	assert_int_equal(fd, -1);
	close(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_names_are_recognized),
		cmocka_unit_test(remote_names_are_split),
		cmocka_unit_test(modules_of_a_daemon_are_hosts),
		cmocka_unit_test(a_listing_needs_no_module),
		cmocka_unit_test(malformed_targets_are_refused),
		cmocka_unit_test(dash_is_stdio),
		cmocka_unit_test(descriptor_names_are_recognized),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
