/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fail.h"
#include "folder.h"
#include "lane/connect.h"
#include "lane/memlock.h"
#include "lane/pool.h"
#include "lane/verbs/verbs_connect.h"
#include "recorded.h"
#include "rights.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RINGS = LANE_RINGS };

struct shape {
	unsigned lanes;
	uint32_t depth, block;
};

static bool fit(uint64_t limit, struct shape *s)
{
	return lanes_fit(limit, &s->lanes, &s->depth, &s->block);
}

static uint64_t bytes(const struct shape *s)
{
	return s->lanes * (uint64_t)(pool_bytes(s->depth, s->block) + RINGS);
}

#define assert_shape(s, l, d, b)                                                                   \
	do {                                                                                       \
		assert_int_equal((s).lanes, l);                                                    \
		assert_int_equal((s).depth, d);                                                    \
		assert_int_equal((s).block, b);                                                    \
	} while (0)

static void test_usual_limit_holds_the_usual_lanes(void **state)
{
	struct shape s = {2, 12, 256 * KIB};

	(void)state;
	assert_true(fit(8 * MIB, &s));
	assert_shape(s, 2, 12, 256 * KIB);
	assert_true(fit(UINT64_MAX, &s));
	assert_shape(s, 2, 12, 256 * KIB);
}

static void test_lane_count_shrinks_first(void **state)
{
	struct shape s = {8, 12, 256 * KIB}, t = {64, 1024, 4 * MIB};

	(void)state;
	assert_true(fit(8 * MIB, &s));
	assert_shape(s, 2, 12, 256 * KIB);
	s.lanes = 2;
	assert_true(fit(4 * MIB, &s));
	assert_shape(s, 1, 12, 256 * KIB);
	/* Exactly the needed amount, and one byte less. */
	assert_true(fit(bytes(&t), &t));
	assert_shape(t, 64, 1024, 4 * MIB);
	assert_true(fit(bytes(&t) - 1, &t));
	assert_shape(t, 63, 1024, 4 * MIB);
}

static void test_depth_shrinks_next_down_to_four(void **state)
{
	struct shape s = {4, 16, 1 * MIB};

	(void)state;
	assert_true(fit(8 * MIB, &s));
	assert_shape(s, 1, 7, 1 * MIB);
	s = (struct shape){2, 12, 256 * KIB};
	assert_true(fit(pool_bytes(4, 256 * KIB) + RINGS, &s));
	assert_shape(s, 1, 4, 256 * KIB);
}

static void test_block_size_shrinks_last(void **state)
{
	struct shape s = {2, 12, 256 * KIB};

	(void)state;
	assert_true(fit(pool_bytes(4, 256 * KIB) + RINGS - 1, &s));
	assert_int_equal(s.lanes, 1);
	assert_int_equal(s.block, 128 * KIB);
	assert_true(s.depth > 4);
	s = (struct shape){2, 12, 256 * KIB};
	assert_true(fit(pool_bytes(4, 16 * KIB) + RINGS, &s));
	assert_shape(s, 1, 4, 16 * KIB);
}

static void test_limit_below_the_minimum_fails(void **state)
{
	struct shape s = {2, 12, 256 * KIB};

	(void)state;
	assert_false(fit(64 * KIB, &s));
	assert_false(fit(0, &s));
	assert_false(fit(pool_bytes(4, 16 * KIB) + RINGS - 1, &s));
	assert_shape(s, 2, 12, 256 * KIB);
}

static void test_smaller_lanes_may_be_requested(void **state)
{
	struct shape s = {1, 1, 4 * KIB};

	(void)state;
	assert_true(fit(bytes(&s), &s));
	assert_shape(s, 1, 1, 4 * KIB);
	assert_false(fit(bytes(&s) - 1, &s));
}

/* The manuals state the number. */
static void test_manuals_state_the_minimum(void **state)
{
	static const char *const pages[] = {"rdcp.1", "rdsend.1", "rdrecv.1"};
	uint64_t least = lane_bytes_least(UINT32_MAX, UINT32_MAX);
	char path[4200], sentence[64], line[4096];

	(void)state;
	snprintf(sentence, sizeof sentence, "Below %u KiB it uses TCP.\n", (unsigned)(least / KIB));
	assert_int_equal(least % KIB, 0);
	for (unsigned i = 0; i < sizeof pages / sizeof *pages; i++) {
		bool found = false;
		FILE *f;

		snprintf(path, sizeof path, "%s/../../man/%s", recorded("."), pages[i]);
		f = fopen(path, "r");
		assert_non_null(f);
		while (!found && fgets(line, sizeof line, f))
			found = strcmp(line, sentence) == 0;
		fclose(f);
		assert_true(found);
	}
}

/* For any limit the result fits, and never exceeds the request. */
static void test_result_fits_any_limit(void **state)
{
	static const struct shape asked[] = {
		{1, 1, 4 * KIB}, {2, 12, 256 * KIB}, {5, 7, 1 * MIB}, {64, 1024, 4 * MIB}};

	(void)state;
	for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
		for (uint64_t limit = 1; limit < (uint64_t)1 << 40; limit += limit / 7 + 1) {
			struct shape s = asked[i];

			if (!fit(limit, &s)) {
				assert_true(limit < pool_bytes(4, 16 * KIB) + RINGS);
				continue;
			}
			assert_true(bytes(&s) <= limit);
			assert_true(s.lanes >= 1 && s.lanes <= asked[i].lanes);
			assert_true(s.depth >= 1 && s.depth <= asked[i].depth);
			assert_true(s.block >= 4 * KIB && s.block <= asked[i].block);
		}
	}
}

static bool is_first_user_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/user", &st) == 0 && st.st_ino == 0xeffffffd;
}

/*
 * Runs in a child process, because the limit can't be raised again: its exit status is the number
 * of the failed check.
 */
static int limits(void)
{
	struct rlimit rl = {.rlim_cur = 32 * KIB, .rlim_max = 64 * KIB};

	if (!right_set(CAP_SYS_RESOURCE, false) || !right_set(CAP_IPC_LOCK, false) ||
	    setrlimit(RLIMIT_MEMLOCK, &rl))
		return 1;
	if (memlock_limit() != 64 * KIB)
		return 2;
	if (getrlimit(RLIMIT_MEMLOCK, &rl) || rl.rlim_cur != 64 * KIB)
		return 3;
	if (fail_memlock(0, 3 * MIB + 200 * KIB) != -1 || failed()->code != OUT_MEMLOCK)
		return 4;
	if (!strstr(failed()->text, "the limit is 64 KiB, a lane needs 3.2 MiB"))
		return 5;
	if (!strstr(failed()->text, "* soft memlock unlimited") ||
	    !strstr(failed()->text, "* hard memlock unlimited") ||
	    !strstr(failed()->text, "/etc/security/limits.d/rdma.conf") ||
	    !strstr(failed()->text, "LimitMEMLOCK=") || !strstr(failed()->text, "log in again"))
		return 6;
	if (strchr(failed()->text, '\n'))
		return 7;
	if (memlock_explains(20 * KIB, true) || !memlock_explains(60 * KIB, true))
		return 8;
	if (memlock_explains(20 * KIB, false) || !memlock_explains(60 * KIB, false))
		return 9;
	/* "a lane needs 20 KiB" of 64 KiB alone would be a riddle. */
	fail_memlock(48 * KIB, 20 * KIB);
	return strstr(failed()->text,
		      "the limit is 64 KiB, 48 KiB are locked already, a lane needs 20 KiB; remedy")
		       ? 0
		       : 10;
}

/* With CAP_IPC_LOCK the kernel does not apply the limit; siw does. */
static int limits_with_right(const char *root_of_siw)
{
	struct rlimit rl = {.rlim_cur = 64 * KIB, .rlim_max = 64 * KIB};
	char sys[4200];

	snprintf(sys, sizeof sys, "%s/sys", recorded("iwarp"));
	if (!right_set(CAP_SYS_RESOURCE, false) || setrlimit(RLIMIT_MEMLOCK, &rl))
		return 1;
	if (!right_set(CAP_IPC_LOCK, true) || !is_first_user_namespace())
		return 0;
	if (memlock_limit_at(sys) != UINT64_MAX || memlock_explains(60 * KIB, false))
		return 2;
	if (memlock_limit_at(root_of_siw) != 64 * KIB)
		return 3;
	if (!right_set(CAP_IPC_LOCK, false) || memlock_limit_at(sys) != 64 * KIB)
		return 4;
	/* A capability of another user namespace does not count. */
	if (!right_set(CAP_IPC_LOCK, true) || unshare(CLONE_NEWUSER) != 0)
		return 0;
	return memlock_limit_at(sys) != 64 * KIB ? 5 : 0;
}

static void make_file(const char *top, const char *name, const char *text)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", top, name);
	for (char *p = strchr(path + strlen(top) + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(path, 0755);
		*p = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_right_to_lock_memory_lifts_the_limit_unless_there_is_siw(void **state)
{
	char top[FOLDER_PATH];
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(folder_make(top), 0);
	make_file(top, "class/infiniband/siw0/node_type", "4: RNIC\n");
	make_file(top, "class/infiniband/siw0/ports/1/state", "4: ACTIVE\n");
	pid = fork();
	if (pid == 0)
		_exit(limits_with_right(top));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(folder_remove(top), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_soft_limit_is_raised_and_the_remedy_reported(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		_exit(limits());
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The reason why RDMA is unavailable is printed to users. */
static void test_missing_adapter_has_a_reason(void **state)
{
	char why[100] = "";
	bool there = verbs_present(why, sizeof why);

	(void)state;
	if (!verbs_built())
		assert_string_equal(why, "this build has no RDMA support");
	else if (access("/sys/class/infiniband", F_OK))
		assert_string_equal(why, "no RDMA device");
	assert_int_equal(there, why[0] == '\0');
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usual_limit_holds_the_usual_lanes),
		cmocka_unit_test(test_lane_count_shrinks_first),
		cmocka_unit_test(test_depth_shrinks_next_down_to_four),
		cmocka_unit_test(test_block_size_shrinks_last),
		cmocka_unit_test(test_limit_below_the_minimum_fails),
		cmocka_unit_test(test_smaller_lanes_may_be_requested),
		cmocka_unit_test(test_manuals_state_the_minimum),
		cmocka_unit_test(test_result_fits_any_limit),
		cmocka_unit_test(test_soft_limit_is_raised_and_the_remedy_reported),
		cmocka_unit_test(test_right_to_lock_memory_lifts_the_limit_unless_there_is_siw),
		cmocka_unit_test(test_missing_adapter_has_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
