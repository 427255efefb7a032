/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/io.h"
#include "cmd/serve/sandbox.h"

enum { CANNOT = 77, NET = 4, SCOPE = 6 };

/* A directory with a file "secret", and a module "m" beside it. */
static char top[64], module[80];

/* In a confined process: ends it with the line that is wrong. */
#define NEED(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s: errno %d\n", __LINE__, #what, errno);        \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static bool makes(int dir, const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	close_fd(fd);
	return fd >= 0;
}

static bool opens(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY);

	close_fd(fd);
	return fd >= 0;
}

static int begin(void **state)
{
	int dir;

	(void)state;
	snprintf(top, sizeof top, "/tmp/confine.XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(module, sizeof module, "%s/m", top);
	assert_int_equal(mkdir(module, 0700), 0);
	dir = open(top, O_RDONLY | O_DIRECTORY);
	assert_true(dir >= 0);
	assert_true(makes(dir, "secret") && makes(dir, "m/file"));
	assert_int_equal(symlinkat("../secret", dir, "m/up"), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir, "m/root"), 0);
	close(dir);
	return 0;
}

static int end(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", top);
	return system(command);
}

static void enter(bool may_change)
{
	NEED(confine_enter(module, NULL, may_change) == 0);
}

/* What a process may do before the module is its root. */
static void open_devices(void *called)
{
	*(bool *)called = true;
	NEED(chroot(".") == -1 && errno == EPERM);
	NEED(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	NEED(opens(AT_FDCWD, "/sys"));
	NEED(opens(AT_FDCWD, "file"));
	NEED(!sandbox_version() || (!opens(AT_FDCWD, "/etc/passwd") && errno == EACCES));
}

static void enter_late(bool may_change)
{
	bool called = false;

	NEED(confine_enter_late(module, NULL, may_change, open_devices, &called) == 0);
	NEED(called);
	/* The process that changed the root directory is gone. */
	NEED(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}

/* Runs it in a process that `confine' has confined. Skips the test if a process cannot be confined
 * here. */
static void run_in(void (*confine)(bool may_change), bool may_change, void (*work)(int outside))
{
	int status, outside = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid_t pid = fork();

	assert_true(outside >= 0 && pid >= 0);
	if (pid == 0) {
		alarm(20);
		if (confine_check(module, NULL))
			_exit(CANNOT);
		confine(may_change);
		work(outside);
		_exit(0);
	}
	close(outside);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
		skip();
	assert_int_equal(status, 0);
}

static void run_confined(bool may_change, void (*work)(int outside))
{
	run_in(enter, may_change, work);
}

static void run_confined_late(bool may_change, void (*work)(int outside))
{
	run_in(enter_late, may_change, work);
}

static void work_inside(int outside)
{
	(void)outside;
	NEED(mkdir("/a", 0700) == 0 && mkdir("b", 0700) == 0);
	NEED(makes(AT_FDCWD, "/a/x") && rename("/a/x", "/b/y") == 0);
	NEED(truncate("/b/y", 5) == 0);
	NEED(link("/b/y", "/a/z") == 0 && symlink("y", "/b/l") == 0);
	NEED(mkfifo("/a/fifo", 0600) == 0 && unlink("/a/fifo") == 0);
	NEED(unlink("/a/z") == 0 && rmdir("/a") == 0);
	NEED(opens(AT_FDCWD, "/b/l") && opens(AT_FDCWD, "file"));
}

static void test_work_inside_a_module_goes_on(void **state)
{
	(void)state;
	run_confined(true, work_inside);
}

static void look_outside(int outside)
{
	(void)outside;
	NEED(!opens(AT_FDCWD, "../secret") && errno == ENOENT);
	NEED(!opens(AT_FDCWD, "/up") && errno == ENOENT);
	NEED(!opens(AT_FDCWD, "/root") && errno == ENOENT);
	NEED(!opens(AT_FDCWD, "/etc/passwd") && errno == ENOENT);
	NEED(chroot("/") == -1 && errno == EPERM);
	/* /dev/null. Linux 6.1 lets everybody make the device 0:0, which is none. */
	NEED(mknod("/device", S_IFCHR | 0600, makedev(1, 3)) == -1);
	NEED(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

static void test_no_name_leads_outside(void **state)
{
	(void)state;
	run_confined(true, look_outside);
}

static void use_descriptor(int outside)
{
	NEED(!opens(outside, "secret") && errno == EACCES);
	NEED(!makes(outside, "new") && errno == EACCES);
	NEED(unlinkat(outside, "secret", 0) == -1 && errno == EACCES);
	NEED(renameat(outside, "secret", AT_FDCWD, "/mine") == -1);
}

static void test_a_descriptor_from_outside_opens_nothing(void **state)
{
	(void)state;
	if (!sandbox_version())
		skip();
	run_confined(true, use_descriptor);
}

static void change_module(int outside)
{
	(void)outside;
	NEED(opens(AT_FDCWD, "/file") && opens(AT_FDCWD, "/"));
	NEED(!makes(AT_FDCWD, "/new") && errno == EACCES);
	NEED(open("/file", O_WRONLY) == -1 && errno == EACCES);
	NEED(unlink("/file") == -1 && errno == EACCES);
	NEED(mkdir("/d", 0700) == -1 && errno == EACCES);
}

static void test_nothing_changes_in_a_read_only_module(void **state)
{
	(void)state;
	if (!sandbox_version())
		skip();
	run_confined(false, change_module);
}

static void test_a_late_root_confines_as_well(void **state)
{
	(void)state;
	run_confined_late(true, work_inside);
	run_confined_late(true, look_outside);
	if (!sandbox_version())
		return;
	run_confined_late(true, use_descriptor);
	run_confined_late(false, change_module);
}

static void connect_out(int outside)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(9),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)outside;
	NEED(fd >= 0);
	NEED(connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == EACCES);
	to.sin_port = htons(10470);
	NEED(bind(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == EACCES);
	close(fd);
}

static void test_no_tcp_port_is_connected_or_bound(void **state)
{
	(void)state;
	if (sandbox_version() < NET)
		skip();
	run_confined(true, connect_out);
}

static void signal_parent(int outside)
{
	(void)outside;
	NEED(kill(getpid(), 0) == 0);
	NEED(kill(getppid(), 0) == -1 && errno == EPERM);
}

static void test_no_other_process_gets_a_signal(void **state)
{
	(void)state;
	if (sandbox_version() < SCOPE)
		skip();
	run_confined(true, signal_parent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_work_inside_a_module_goes_on, begin, end),
		cmocka_unit_test_setup_teardown(test_a_late_root_confines_as_well, begin, end),
		cmocka_unit_test_setup_teardown(test_no_name_leads_outside, begin, end),
		cmocka_unit_test_setup_teardown(test_a_descriptor_from_outside_opens_nothing, begin,
						end),
		cmocka_unit_test_setup_teardown(test_nothing_changes_in_a_read_only_module, begin,
						end),
		cmocka_unit_test_setup_teardown(test_no_tcp_port_is_connected_or_bound, begin, end),
		cmocka_unit_test_setup_teardown(test_no_other_process_gets_a_signal, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
