/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "cmd/process/child.h"
#include "folder.h"
#include <cmocka.h>

static char dir[FOLDER_PATH];

static int dir_make(void **state)
{
	(void)state;
	return folder_make(dir);
}

static int dir_remove(void **state)
{
	(void)state;
	return rmdir(dir);
}

static int run(const char *const argv[], const struct child_opts *o, struct child *out)
{
	return child_exec((char *const *)(uintptr_t)argv, o, out);
}

/* Everything that a child prints until it closes its output. */
static char *said(struct child *c, char *to, size_t size)
{
	ssize_t n = read_full(c->out, to, size - 1);

	assert_true(n >= 0);
	to[n] = '\0';
	return to;
}

static int ended(struct child *c)
{
	int status = -1;

	assert_true(child_wait(c, &status, clock_ms() + 10000));
	child_stop(c);
	return status;
}

static void test_child_gets_stdin_and_returns_its_status(void **state)
{
	const char *const argv[] = {"sh", "-c", "tr a-z A-Z; exit 3", NULL};
	struct child_opts o = {.what = "command sh", .pipe_in = true, .pipe_out = true};
	struct child c;
	char text[64];
	int status;

	(void)state;
	assert_int_equal(run(argv, &o, &c), 0);
	assert_int_equal(write_full(c.in, "hello", 5), 0);
	child_close_in(&c);
	assert_string_equal(said(&c, text, sizeof text), "HELLO");
	status = ended(&c);
	assert_int_equal(WEXITSTATUS(status), 3);
	assert_string_equal(child_end_text(status, text, sizeof text), "exited with 3");
	/* A second wait returns the same. */
	assert_int_equal(ended(&c), status);
}

static void test_missing_program_fails_at_once(void **state)
{
	const char *const argv[] = {"sluice-no-such-program", NULL};
	struct child_opts o = {.what = "ssh far", .pipe_in = true, .pipe_out = true};
	struct child c;

	(void)state;
	assert_int_equal(run(argv, &o, &c), -1);
	assert_int_equal(failed()->code, OUT_START);
	assert_string_equal(failed()->text, "run ssh far: No such file or directory");
	assert_int_equal(c.pid, 0);
	assert_int_equal(c.in, -1);
	assert_int_equal(c.out, -1);
}

static void test_held_command_waits_for_go(void **state)
{
	char mark[96], cmd[128];
	const char *const argv[] = {"sh", "-c", cmd, NULL};
	struct child_opts o = {.what = "command sh", .held = true};
	struct stat st;
	struct child c;
	int status;

	(void)state;
	snprintf(mark, sizeof mark, "%s/mark", dir);
	snprintf(cmd, sizeof cmd, "touch %s", mark);
	assert_int_equal(run(argv, &o, &c), 0);
	assert_false(child_wait(&c, &status, clock_ms() + 200));
	assert_int_equal(stat(mark, &st), -1);
	assert_int_equal(child_run_held(&c), 0);
	assert_int_equal(ended(&c), 0);
	assert_int_equal(unlink(mark), 0);
}

static void test_missing_held_command_fails_at_go(void **state)
{
	const char *const argv[] = {"sluice-no-such-program", NULL};
	struct child_opts o = {.what = "command x", .held = true};
	struct child c;

	(void)state;
	assert_int_equal(run(argv, &o, &c), 0);
	assert_int_equal(child_run_held(&c), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_string_equal(failed()->text, "run command x: No such file or directory");
}

static void test_stopped_held_command_never_runs(void **state)
{
	char mark[96], cmd[128];
	const char *const argv[] = {"sh", "-c", cmd, NULL};
	struct child_opts o = {.what = "command sh", .held = true};
	struct stat st;
	struct child c;

	(void)state;
	snprintf(mark, sizeof mark, "%s/mark", dir);
	snprintf(cmd, sizeof cmd, "touch %s", mark);
	assert_int_equal(run(argv, &o, &c), 0);
	child_stop(&c);
	assert_int_equal(c.pid, 0);
	assert_int_equal(stat(mark, &st), -1);
}

/* In a process of its own: start a held command, report its pid, and die. */
static int hold_and_die(void *ctx, int in, int out)
{
	const char *const argv[] = {"sleep", "60", NULL};
	struct child_opts o = {.what = "command sleep", .held = true};
	struct child c;

	(void)ctx;
	(void)in;
	if (run(argv, &o, &c) < 0 || write_full(out, &c.pid, sizeof c.pid) < 0)
		return 1;
	raise(SIGKILL);
	return 1;
}

static void test_held_command_dies_with_its_parent(void **state)
{
	struct child c;
	uint64_t deadline = clock_ms() + 10000;
	pid_t held;

	(void)state;
	assert_int_equal(child_fork(hold_and_die, NULL, "holder", &c), 0);
	assert_int_equal(read_full(c.out, &held, sizeof held), sizeof held);
	assert_true(WIFSIGNALED(ended(&c)));
	while (kill(held, 0) == 0 && clock_left(deadline)) {
		char path[64], text[256] = "";
		int fd;

		/* There may be no init process that reaps it. */
		snprintf(path, sizeof path, "/proc/%d/stat", held);
		fd = open(path, O_RDONLY);
		if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 && strstr(text, ") Z "))
			deadline = clock_ms() + 1, text[0] = 'Z';
		close_fd(fd);
		if (text[0] == 'Z')
			return;
		usleep(10000);
	}
	assert_true(clock_left(deadline) > 0);
}

static void test_child_environment_has_no_key(void **state)
{
	const char *const argv[] = {"sh", "-c", "echo \"[$RD_KEY][$SLUICE_OTHER]\"", NULL};
	struct child_opts o = {.what = "command sh", .pipe_out = true};
	struct child c;
	char text[64];

	(void)state;
	setenv("RD_KEY", "secret", 1);
	setenv("SLUICE_OTHER", "kept", 1);
	assert_int_equal(run(argv, &o, &c), 0);
	assert_string_equal(said(&c, text, sizeof text), "[][kept]\n");
	assert_int_equal(ended(&c), 0);
	assert_string_equal(getenv("RD_KEY"), "secret");
	unsetenv("RD_KEY");
	unsetenv("SLUICE_OTHER");
}

/* One line of /proc/self/status as a number. */
static unsigned long long mask_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	assert_non_null(line);
	return strtoull(line + strlen(name), NULL, 16);
}

static void status_of_child(bool ignore_sigint, char *text, size_t size)
{
	const char *const argv[] = {"cat", "/proc/self/status", NULL};
	struct child_opts o = {.what = "command cat",
			       .pipe_out = true,
			       .ignore_sigint = ignore_sigint};
	struct child c;

	assert_int_equal(run(argv, &o, &c), 0);
	said(&c, text, size);
	assert_int_equal(ended(&c), 0);
}

static void test_child_inherits_original_signal_dispositions(void **state)
{
	static char text[8192];
	unsigned long long sigint = 1ULL << (SIGINT - 1), sighup = 1ULL << (SIGHUP - 1);
	sigset_t all, old;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	status_of_child(false, text, sizeof text);
	sigprocmask(SIG_SETMASK, &old, NULL);
	assert_true(mask_of(text, "SigBlk:") == 0);
	assert_true((mask_of(text, "SigIgn:") & ~(sighup | sigint | 7ULL << 19 | 4)) == 0);
	signal(SIGHUP, SIG_IGN); /* ignored as by nohup(1) */
	status_of_child(true, text, sizeof text);
	assert_true(mask_of(text, "SigIgn:") & sigint);
	assert_true(mask_of(text, "SigIgn:") & sighup);
	signal(SIGHUP, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
}

/* Descriptors that the test's parent left open in all of its children. */
static int inherited(void)
{
	int n = 0;

	for (int fd = 3; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) == 0;
	return n;
}

static void test_child_inherits_only_stdio(void **state)
{
	const char *const argv[] = {"sh", "-c", "ls /proc/self/fd | wc -l", NULL};
	const char *const cat[] = {"cat", NULL};
	struct child_opts o = {.what = "command sh", .pipe_in = true, .pipe_out = true};
	struct child first, c;
	char text[64], expected[64];
	int extra = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(run(cat, &o, &first), 0);
	assert_int_equal(run(argv, &o, &c), 0);
	/* 0, 1, 2 and the directory that ls reads */
	snprintf(expected, sizeof expected, "%d\n", 4 + inherited());
	assert_string_equal(said(&c, text, sizeof text), expected);
	assert_int_equal(ended(&c), 0);
	child_stop(&first);
	close_fd(extra);
}

static int echo_until_end(void *ctx, int in, int out)
{
	char byte;

	(void)ctx;
	while (read(in, &byte, 1) == 1)
		if (write_full(out, &byte, 1) < 0)
			return 1;
	return 7;
}

static void test_forked_end_sees_end_of_file(void **state)
{
	struct child a, b;
	char byte;
	int status;

	(void)state;
	assert_int_equal(child_fork(echo_until_end, NULL, "end a", &a), 0);
	/* The second child must not keep our end of the first one's pipe open. */
	assert_int_equal(child_fork(echo_until_end, NULL, "end b", &b), 0);
	assert_int_equal(write_full(a.in, "x", 1), 0);
	assert_int_equal(read_full(a.out, &byte, 1), 1);
	assert_int_equal(byte, 'x');
	child_close_in(&a);
	status = ended(&a);
	assert_int_equal(WEXITSTATUS(status), 7);
	child_close_in(&b);
	assert_int_equal(WEXITSTATUS(ended(&b)), 7);
}

static void test_stop_ends_a_child_that_ignores_sigterm(void **state)
{
	const char *const argv[] = {"sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done",
				    NULL};
	struct child_opts o = {.what = "command sh", .pipe_out = true};
	uint64_t before;
	struct child c;
	char byte;

	(void)state;
	assert_int_equal(run(argv, &o, &c), 0);
	assert_int_equal(read_full(c.out, &byte, 1), 1);
	before = clock_ms();
	child_stop(&c);
	assert_int_equal(c.pid, 0);
	assert_true(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGKILL);
	assert_true(clock_ms() - before < 5000);
}

static void test_stop_ends_a_stopped_child(void **state)
{
	const char *const argv[] = {"sh", "-c", "echo; kill -STOP $$; sleep 60", NULL};
	struct child_opts o = {.what = "command sh", .pipe_out = true};
	struct child c;
	char byte;

	(void)state;
	assert_int_equal(run(argv, &o, &c), 0);
	assert_int_equal(read_full(c.out, &byte, 1), 1);
	child_stop(&c);
	assert_int_equal(c.pid, 0);
	assert_true(WIFSIGNALED(c.status));
}

static int with_closed_stdio(void *ctx, int in, int out)
{
	const char *const argv[] = {"cat", NULL};
	struct child_opts o = {.what = "command cat", .pipe_in = true, .pipe_out = true};
	struct child c;
	char byte = 0;

	(void)ctx;
	(void)in;
	(void)out;
	close(0);
	close(1);
	if (run(argv, &o, &c) < 0)
		return 1;
	if (write_full(c.in, "y", 1) < 0 || read_full(c.out, &byte, 1) != 1 || byte != 'y')
		return 2;
	child_stop(&c);
	return 0;
}

static void test_pipes_work_with_closed_stdio(void **state)
{
	struct child c;

	(void)state;
	assert_int_equal(child_fork(with_closed_stdio, NULL, "end", &c), 0);
	assert_int_equal(ended(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_gets_stdin_and_returns_its_status),
		cmocka_unit_test(test_missing_program_fails_at_once),
		cmocka_unit_test(test_held_command_waits_for_go),
		cmocka_unit_test(test_missing_held_command_fails_at_go),
		cmocka_unit_test(test_stopped_held_command_never_runs),
		cmocka_unit_test(test_held_command_dies_with_its_parent),
		cmocka_unit_test(test_child_environment_has_no_key),
		cmocka_unit_test(test_child_inherits_original_signal_dispositions),
		cmocka_unit_test(test_child_inherits_only_stdio),
		cmocka_unit_test(test_forked_end_sees_end_of_file),
		cmocka_unit_test(test_stop_ends_a_child_that_ignores_sigterm),
		cmocka_unit_test(test_stop_ends_a_stopped_child),
		cmocka_unit_test(test_pipes_work_with_closed_stdio),
	};

	return cmocka_run_group_tests_name("launch", tests, dir_make, dir_remove);
}
