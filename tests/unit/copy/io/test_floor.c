/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/floor.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"

enum { MINE = 3, MIB = 1 << 20 };
static const off_t SLOT = (off_t)1 << 40;
static int disk, board;

static int open_disk(void **state)
{
	(void)state;
	disk = open(".", O_RDONLY | O_DIRECTORY);
	board = floor_make_board();
	return disk < 0 || board < 0;
}

static int close_disk(void **state)
{
	(void)state;
	close(board);
	return close(disk);
}

static void set(uint64_t min_free, uint64_t max_bytes)
{
	const struct floor f = {min_free, max_bytes, board, MINE};

	floor_set(&f);
}

/* In another process: how much a slot announces, in MiB; -1 on failure. */
static int announced_mib(unsigned slot)
{
	struct flock l = {F_WRLCK, SEEK_SET, slot * SLOT, SLOT, 0};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (fcntl(board, F_GETLK, &l))
			_exit(255);
		_exit(l.l_type == F_UNLCK ? 0 : (int)(l.l_len / MIB));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Another process, which announces len bytes in a slot until it is killed. */
static pid_t start_other(unsigned slot, off_t len)
{
	struct flock l = {F_WRLCK, SEEK_SET, slot * SLOT, len, 0};
	int ready[2];
	pid_t pid;
	char byte;

	if (pipe(ready))
		return -1;
	pid = fork();
	if (pid == 0) {
		if (fcntl(board, F_SETLK, &l) == 0)
			(void)!write(ready[1], "x", 1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		pid = -1;
	close(ready[0]);
	return pid;
}

static void end_other(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void assert_said(const char *why)
{
	assert_int_equal(floor_fail("x"), -1);
	assert_int_equal(failed()->code, OUT_FILE);
	assert_non_null(strstr(failed()->text, why));
}

static void test_nothing_is_limited(void **state)
{
	(void)state;
	set(0, 0);
	assert_false(floor_is_set());
	assert_int_equal(floor_begin(disk, MIB), 0);
	assert_int_equal(announced_mib(MINE), 0);
	floor_end(MIB);
	assert_int_equal(floor_check(disk, UINT64_MAX), 0);
	errno = EIO;
	assert_said("write x: Input/output error");
}

static void test_a_write_is_announced(void **state)
{
	(void)state;
	set(1, 0);
	assert_int_equal(floor_begin(disk, MIB), 0);
	assert_int_equal(floor_begin(disk, 2 * MIB), 0);
	assert_int_equal(announced_mib(MINE), 3);
	assert_int_equal(floor_begin(disk, 0), 0);
	floor_end(MIB);
	assert_int_equal(announced_mib(MINE), 2);
	floor_end(0);
	floor_end(2 * MIB);
	assert_int_equal(announced_mib(MINE), 0);
}

static void test_the_floor(void **state)
{
	(void)state;
	set(UINT64_MAX, 0);
	assert_int_equal(floor_begin(disk, 1), -1);
	assert_said("min free");
	assert_int_equal(announced_mib(MINE), 0);
	assert_int_equal(floor_check(disk, 0), -1);
	assert_said("min free");
	set(1, 0);
	assert_int_equal(floor_check(disk, 1), 0);
	assert_int_equal(floor_check(disk, UINT64_MAX), -1);
}

static void test_a_disk_that_cannot_be_examined(void **state)
{
	(void)state;
	set(1, 0);
	assert_int_equal(floor_begin(-1, 1), -1);
	assert_said("write x: Bad file descriptor");
	assert_int_equal(announced_mib(MINE), 0);
	assert_int_equal(floor_check(-1, 0), -1);
	assert_said("write x: Bad file descriptor");
}

/* Together they announce more than this disk has. Each of them alone is found, whatever its slot.
 */
static void test_what_others_write_counts(void **state)
{
	static const unsigned slots[] = {0, 2, 200};
	struct statfs fs;
	uint64_t left;

	(void)state;
	assert_int_equal(fstatfs(disk, &fs), 0);
	left = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (left >= (uint64_t)SLOT)
		left = (uint64_t)SLOT - 1;
	/* Others who use this disk free less than a part of it meanwhile. */
	set(fs.f_bavail * (uint64_t)fs.f_bsize - left / 2, 0);
	assert_int_equal(floor_begin(disk, 1), 0);
	floor_end(1);
	for (unsigned i = 0; i < sizeof slots / sizeof *slots; i++) {
		pid_t two = start_other(1, 1), other = start_other(slots[i], (off_t)left);

		assert_true(two > 0 && other > 0);
		assert_int_equal(floor_begin(disk, 1), -1);
		assert_said("min free");
		end_other(other);
		assert_int_equal(floor_begin(disk, 1), 0);
		floor_end(1);
		end_other(two);
	}
}

/* The last test: what is stored is never forgotten. */
static void test_bytes_of_a_process(void **state)
{
	(void)state;
	set(1, 5ull * MIB);
	assert_int_equal(floor_check(disk, 1 * MIB), 0);
	assert_int_equal(floor_begin(disk, 6 * MIB), -1);
	assert_said("at most 5 MiB");
	assert_int_equal(floor_begin(disk, 1 * MIB), 0);
	floor_end(1 * MIB);
	assert_int_equal(floor_check(disk, 6 * MIB), -1);
	assert_said("max bytes");
	assert_int_equal(announced_mib(MINE), 0);
	set(0, 1);
	assert_int_equal(floor_begin(disk, 1), -1);
	assert_int_equal(floor_check(disk, 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_limited),
		cmocka_unit_test(test_a_write_is_announced),
		cmocka_unit_test(test_the_floor),
		cmocka_unit_test(test_a_disk_that_cannot_be_examined),
		cmocka_unit_test(test_what_others_write_counts),
		cmocka_unit_test(test_bytes_of_a_process),
	};

	return cmocka_run_group_tests(tests, open_disk, close_disk);
}
