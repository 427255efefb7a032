/* SPDX-License-Identifier: Apache-2.0 */

/* Which NUMA node a lane runs on, with a /sys made for the test. */

#include "host/numa.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "folder.h"
#include "lane/pool.h"
#include <cmocka.h>

static char root[FOLDER_PATH];

static void write_file(const char *path, const char *text)
{
	char name[256];
	FILE *f;

	snprintf(name, sizeof name, "%s/", root);
	for (const char *c = path; *c; c++) {
		size_t used = strlen(name);

		if (*c == '/')
			mkdir(name, 0700);
		name[used] = *c;
		name[used + 1] = '\0';
	}
	f = fopen(name, "we");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* The n-th processor that this process may use (n modulo their number), as a cpulist. */
static void list_own_cpu(unsigned n, char *to, size_t size)
{
	cpu_set_t mine;
	unsigned at = 0, count;

	assert_int_equal(sched_getaffinity(getpid(), sizeof mine, &mine), 0);
	count = (unsigned)CPU_COUNT(&mine);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &mine) && at++ == n % count)
			snprintf(to, size, "%u\n", cpu);
}

static int make_sysfs(void **state)
{
	char cpus[16];

	(void)state;
	if (folder_make(root))
		return -1;
	write_file("devices/system/node/online", "0-1\n");
	list_own_cpu(0, cpus, sizeof cpus);
	write_file("devices/system/node/node0/cpulist", cpus);
	list_own_cpu(1, cpus, sizeof cpus);
	write_file("devices/system/node/node1/cpulist", cpus);
	write_file("class/infiniband/near/device/numa_node", "0\n");
	write_file("class/infiniband/other/device/numa_node", "1\n");
	write_file("class/infiniband/soft/device/numa_node", "-1\n");
	write_file("class/infiniband/astray/device/numa_node", "77\n");
	return 0;
}

static int remove_sysfs(void **state)
{
	(void)state;
	return folder_remove(root);
}

static void test_adapter_node_is_read(void **state)
{
	(void)state;
	assert_int_equal(numa_node_of(root, "near"), 0);
	assert_int_equal(numa_node_of(root, "other"), 1);
	assert_int_equal(numa_node_of(root, "soft"), -1);
	assert_int_equal(numa_node_of(root, "none"), -1);
	assert_int_equal(numa_node_of(root, "../../../etc"), -1);
	assert_int_equal(numa_node_of("/nonexistent", "near"), -1);
	write_file("devices/system/node/online", "0\n");
	assert_int_equal(numa_node_of(root, "near"), -1);
	write_file("devices/system/node/online", "0,3\n");
	assert_int_equal(numa_node_of(root, "near"), 0);
	write_file("devices/system/node/online", "0-1\n");
}

static void test_only_allowed_processors_are_used(void **state)
{
	cpu_set_t allowed, got;

	(void)state;
	write_file("devices/system/node/node5/cpulist", "2-4,8\n");
	CPU_ZERO(&allowed);
	CPU_SET(3, &allowed);
	CPU_SET(5, &allowed);
	CPU_SET(8, &allowed);
	assert_true(numa_processors(root, 5, &allowed, &got));
	assert_int_equal(CPU_COUNT(&got), 2);
	assert_true(CPU_ISSET(3, &got) && CPU_ISSET(8, &got));
	CPU_ZERO(&allowed);
	CPU_SET(1, &allowed);
	assert_false(numa_processors(root, 5, &allowed, &got));
	assert_false(numa_processors(root, 6, &allowed, &got));
	write_file("devices/system/node/node5/cpulist", "\n");
	assert_false(numa_processors(root, 5, &allowed, &got));
}

/* In a thread of its own, as a lane runs; the result of that. */
struct settled {
	const char *devices[3];
	cpu_set_t after[3];
	bool whole;
};

static void *settle(void *arg)
{
	struct settled *s = arg;
	struct pool p;

	if (pool_init(&p, 12, 256 << 10))
		return NULL;
	memset(p.blocks[3].data, 3, 256 << 10);
	for (unsigned i = 0; i < 3; i++) {
		numa_settle(root, s->devices[i], p.pages.base, p.pages.mapped);
		sched_getaffinity(0, sizeof s->after[i], &s->after[i]);
	}
	s->whole = p.blocks[3].data[0] == 3 && p.blocks[3].data[(256 << 10) - 1] == 3 &&
		   p.blocks[4].data[0] == 0;
	pool_free(&p);
	return NULL;
}

static void test_thread_and_its_blocks_move_to_the_node(void **state)
{
	struct settled s = {.devices = {"near", "other", "soft"}};
	cpu_set_t before, after, right;
	pthread_t t;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	assert_int_equal(pthread_create(&t, NULL, settle, &s), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(s.whole);
	for (int node = 0; node < 2; node++) {
		assert_true(numa_processors(root, node, &before, &right));
		assert_true(CPU_EQUAL(&s.after[node], &right));
	}
	/* With an adapter without a node it stays where it was. */
	assert_true(CPU_EQUAL(&s.after[2], &s.after[1]));
	/* No other thread moves. */
	assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
}

/* For a node without a processor of ours, or without memory, nothing fails. */
static void test_unusable_node_changes_nothing(void **state)
{
	struct settled s = {.devices = {"astray", "none", "soft"}};
	cpu_set_t before;
	pthread_t t;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	assert_int_equal(pthread_create(&t, NULL, settle, &s), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(s.whole);
	for (unsigned i = 0; i < 3; i++)
		assert_true(CPU_EQUAL(&s.after[i], &before));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_adapter_node_is_read),
		cmocka_unit_test(test_only_allowed_processors_are_used),
		cmocka_unit_test(test_thread_and_its_blocks_move_to_the_node),
		cmocka_unit_test(test_unusable_node_changes_nothing),
	};

	return cmocka_run_group_tests(tests, make_sysfs, remove_sysfs);
}
