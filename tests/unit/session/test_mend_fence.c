/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How long an end waits until the other one has given up the wire too: for as long as the other's
 * thread is in a file call, and no longer.
 */

#include "session_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include <cmocka.h>

enum { GATE_AT = 30, ENOUGH = 4 /* answers other than busy */ };

static struct pair p;

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	for (unsigned i = 0; i < 2; i++)
		p.ends[i].o.timeout_ms = 1000;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	session_pair_close(&p);
	return 0;
}

/*
 * ---- blocked -----------------------------------------------------------------------------------
 */

static unsigned gate_end;
static _Atomic uint64_t at_gate;
static _Atomic bool gate_open;

static void stand_at_gate(struct lane_job *j, struct block *b, uint64_t number)
{
	uint64_t deadline = clock_ms() + 60000;

	(void)b;
	if (j->end != gate_end || j->index != 0 || number != GATE_AT)
		return;
	atomic_store(&at_gate, 1);
	while (!atomic_load(&gate_open) && clock_left(deadline) > 0)
		pause_ms(2);
}

/* A thread is in a file call: its end is asked, answers that it is busy, and the wait goes on. */
static void away(unsigned who)
{
	gate_end = who;
	atomic_store(&at_gate, 0);
	atomic_store(&gate_open, false);
	p.work = stand_at_gate;
	assert_int_equal(pair_use_proxy(&p), 0);
	assert_int_equal(session_pair_open(&p), 0);
	pair_start(&p, 200);
	assert_true(await_count(&at_gate, 1));
	for (unsigned k = 0; k < 2; k++)
		assert_true(await_count(&p.ends[SINK].jobs[k].done, 1));
	atomic_fetch_add(&p.proxy.cuts, 1);
	assert_true(pair_await(&p, who, MSG_LANE_HELD, ENOUGH + 2));
	atomic_store(&gate_open, true);
	assert_int_equal(pair_finish(&p), 0);
}

static void test_blocked_sink_is_waited_for(void **state)
{
	(void)state;
	away(SINK);
}

static void test_blocked_source_is_waited_for(void **state)
{
	(void)state;
	away(SOURCE);
}

/*
 * ---- never blocked -----------------------------------------------------------------------------
 */

static enum verdict drop_over(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
			      uint32_t *len)
{
	struct frame f = {.type = type, .len = *len, .body = body};
	struct msg_lane_stored stored;
	struct msg_lane_down down;

	(void)pair;
	if (from == SINK && type == MSG_LANE_DOWN && msg_lane_down_decode(&f, &down) == 0)
		return down.lane == 2 ? DROP : PASS;
	if (from == SINK && type == MSG_LANE_STORED && msg_lane_stored_decode(&f, &stored) == 0)
		return stored.lane == 2 ? DROP : PASS;
	return PASS;
}

/*
 * The first connection of a lane fails at the accepting end, which waits for another one; the
 * connecting end never learns of it.
 */
static void test_wait_for_a_silent_sink_ends(void **state)
{
	uint64_t before = clock_ms();
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	p.filter = drop_over;
	p.ends[SOURCE].o.lanes = p.ends[SINK].o.lanes = 3;
	assert_int_equal(session_pair_open(&p), 0);
	pair_start(&p, 200);
	assert_int_equal(pair_finish(&p), -1);
	assert_true(clock_ms() - before < 40000);
	assert_true(pair_seen(&p, SINK, MSG_LANE_HELD) >= ENOUGH);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_TIMEOUT);
		assert_string_equal(f.text,
				    "lane 2: the connection broke, and for 5 s far has neither "
				    "acknowledged that nor been busy");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_blocked_sink_is_waited_for),
		T(test_blocked_source_is_waited_for),
		T(test_wait_for_a_silent_sink_ends),
#undef T
	};

	signal(SIGPIPE, SIG_IGN);
	setenv("SLUICE_FAULT", "take:lane=2,times=1", 1);
	return cmocka_run_group_tests_name("mend_fence", tests, NULL, NULL);
}
