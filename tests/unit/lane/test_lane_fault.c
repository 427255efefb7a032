/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Faults in SLUICE_FAULT have their documented effect, and lanes react as they should. Only in
 * builds with -Dfaults=true.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "lane/fault.h"
#include "lane_stream.h"

enum { LONG_MS = 60000, STALL_MS = 120 };

static struct lane_stats stats;
static struct job from, to;
static struct pair p;

/* Sends 20 blocks over the lane with this index. */
static void transfer(unsigned index)
{
	void *state;
	bool left;

	from = (struct job){.pair = &p, .blocks = 20};
	to = (struct job){.pair = &p};
	assert_int_equal(stream_backend.setup(&state), 0);
	assert_int_equal(pair_open(&p, &stream_backend, state, index, 4, 4096, NULL), 0);
	job_start(&to, sink_job);
	job_start(&from, source_job);
	left = job_join(&from, LONG_MS);
	pair_end(&p);
	if (!left || !job_join(&to, LONG_MS))
		abort();
	lane_stats(p.source.lane, &stats);
	pair_close(&p);
	stream_backend.teardown(state);
	assert_string_equal(to.wrong, "");
}

static void test_block_damaged_once_is_resent(void **arg)
{
	(void)arg;
	transfer(0);
	assert_int_equal(from.rc, 0);
	assert_int_equal(to.done, 20);
	assert_int_equal(stats.epochs, 2);
	assert_true(stats.resent >= 1);
}

static void test_block_damaged_twice_ends_the_lane(void **arg)
{
	(void)arg;
	transfer(1);
	assert_int_equal(p.first.code, OUT_INTEGRITY);
	assert_string_equal(p.first.text, "lane 1: block 4 arrived damaged twice");
	assert_int_equal(to.done, 4);
}

static void test_broken_wire_is_mended(void **arg)
{
	(void)arg;
	assert_false(fault_connect(2));
	transfer(2);
	assert_true(fault_connect(2));
	assert_false(fault_connect(3));
	assert_int_equal(from.rc, 0);
	assert_int_equal(to.done, 20);
	assert_int_equal(stats.epochs, 2);
}

static void test_periodic_faults_are_mended(void **arg)
{
	(void)arg;
	transfer(4); /* blocks 2, 8 and 14 break the wire, 5 and 16 arrive damaged */
	assert_int_equal(from.rc, 0);
	assert_int_equal(to.done, 20);
	/* Block 8 may be sent before the sink reports that 5 is damaged. */
	assert_in_range(stats.epochs, 5, 6);
}

static void test_stall_delays_the_lane(void **arg)
{
	uint64_t before = clock_ms();

	(void)arg;
	transfer(3);
	assert_int_equal(from.rc, 0);
	assert_true(clock_ms() - before >= STALL_MS);
	assert_int_equal(stats.epochs, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_block_damaged_once_is_resent),
		cmocka_unit_test(test_block_damaged_twice_ends_the_lane),
		cmocka_unit_test(test_broken_wire_is_mended),
		cmocka_unit_test(test_stall_delays_the_lane),
		cmocka_unit_test(test_periodic_faults_are_mended),
	};

	setenv("SLUICE_FAULT",
	       "damage:lane=0,block=7;damage:lane=1,block=4,times=2;"
	       "break:lane=2,block=3,times=1;stall:lane=3,block=2,ms=120;norejoin:lane=2;norejoin:lane=3;"
	       "break:lane=4,block=2,every=6;damage:lane=4,block=5,every=11",
	       1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
