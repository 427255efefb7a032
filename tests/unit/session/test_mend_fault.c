/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The accepting end of a lane fails after its hello was delivered, so that only the connecting end
 * has a wire: both ends still agree on one.
 */

#include "session_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct pair p;

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	session_pair_close(&p);
	return 0;
}

static void carry(bool source_listens)
{
	p.ends[SOURCE].o.listens = source_listens;
	p.ends[SINK].o.listens = !source_listens;
	p.ends[SOURCE].o.lanes = p.ends[SINK].o.lanes = 3;
	assert_int_equal(session_pair_open(&p), 0);
	pair_start(&p, 200);
	assert_int_equal(pair_finish(&p), 0);
	for (unsigned k = 0; k < 3; k++)
		assert_int_equal(lane_stored(session_lane(p.ends[SOURCE].s, k)), 200);
}

static void test_lane_recovers_when_sink_fails_after_its_hello(void **state)
{
	(void)state;
	carry(false);
	/* The sink reported each of the failures. */
	assert_true(pair_seen(&p, SINK, MSG_LANE_DOWN) >= 6);
}

static void test_lane_recovers_when_listening_source_fails_after_its_hello(void **state)
{
	(void)state;
	carry(true);
	assert_true(pair_seen(&p, SOURCE, MSG_LANE_DOWN) >= 6);
}

static int run_sink(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lane_recovers_when_sink_fails_after_its_hello,
						setup, teardown),
	};

	return cmocka_run_group_tests_name("mend_fault_sink", tests, NULL, NULL);
}

static int run_source(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_lane_recovers_when_listening_source_fails_after_its_hello, setup,
			teardown),
	};

	return cmocka_run_group_tests_name("mend_fault_source", tests, NULL, NULL);
}

/* A process counts each fault once, so each test has a fault of its own. */
int main(void)
{
	int status = 0;
	pid_t child;

	signal(SIGPIPE, SIG_IGN);
	setenv("SLUICE_FAULT", "take:lane=0,times=1;take:lane=1,times=2;take:lane=2,times=3", 1);
	child = fork();
	if (child == 0)
		return run_sink();
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return 1;
	return run_source() + !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
