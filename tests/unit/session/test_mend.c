/* SPDX-License-Identifier: Apache-2.0 */

/*
 * "Credit is the acknowledgement" and "Recovery is fenced" of docs/design.md, sentence by sentence,
 * between two complete sessions over TCP.
 */

#include "session_pair.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
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

static void opened(void)
{
	if (session_pair_open(&p) < 0)
		print_error("%s / %s\n", p.ends[0].why.text, p.ends[1].why.text);
	assert_non_null(p.ends[0].s);
	assert_non_null(p.ends[1].s);
}

static void finished(void)
{
	int rc = pair_finish(&p);

	if (rc < 0)
		for (unsigned i = 0; i < 2; i++)
			for (unsigned k = 0; k < 2; k++)
				print_error("end %u lane %u: rc %d done %lu disorder %d: %s\n", i,
					    k, p.ends[i].jobs[k].rc,
					    (unsigned long)p.ends[i].jobs[k].done,
					    p.ends[i].jobs[k].disorder, p.ends[i].jobs[k].why.text);
	assert_int_equal(rc, 0);
}

static struct lane_stats lane_of(unsigned end, unsigned k)
{
	struct lane_stats s;

	lane_stats(session_lane(p.ends[end].s, k), &s);
	return s;
}

/* ---- a gate in the file call ---------------------------------------------------------------- */

enum { EVERY_LANE = UINT_MAX };

struct gate {
	unsigned end, lane; /* of this end; EVERY_LANE: the threads of all its lanes */
	uint64_t number; /* at this block */
	_Atomic uint64_t there; /* threads that have reached it */
	_Atomic bool open;
};

static void stand_at_gate(struct lane_job *j, struct block *b, uint64_t number)
{
	struct gate *g = j->p->arg;
	uint64_t deadline = clock_ms() + 60000;

	(void)b;
	if (j->end != g->end || number != g->number ||
	    (g->lane != EVERY_LANE && j->index != g->lane))
		return;
	atomic_fetch_add(&g->there, 1);
	while (!atomic_load(&g->open) && clock_left(deadline) > 0)
		pause_ms(2);
}

/* Wait until each lane has stored something: before that there is nothing to cut. */
static void await_lanes(void)
{
	for (unsigned k = 0; k < session_lanes(p.ends[SINK].s); k++)
		assert_true(await_count(&p.ends[SINK].jobs[k].done, 1));
}

static void cut_lanes(void)
{
	await_lanes();
	atomic_fetch_add(&p.proxy.cuts, 1);
}

/* ---- credit is the acknowledgement ------------------------------------------------------------
 */

/*
 * A sink returns a block only after its bytes are written. The cumulative credit n means that the
 * first n blocks of this lane are stored.
 */
static void test_unwritten_block_is_not_credited(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 7};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SOURCE].o.lanes = 1;
	opened();
	pair_start(&p, 100);
	assert_true(await_count(&g.there, 1));
	pause_ms(200);
	assert_true(lane_stored(session_lane(p.ends[SOURCE].s, 0)) <= 7);
	assert_int_equal(lane_stored(session_lane(p.ends[SINK].s, 0)), 7);
	atomic_store(&g.open, true);
	finished();
	assert_int_equal(lane_stored(session_lane(p.ends[SOURCE].s, 0)), 100);
}

/*
 * The source keeps a block filled until its credit is back, and lends it again only then: while
 * nothing is stored it can send each of its blocks once.
 */
static void test_block_is_lent_again_only_when_stored(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 0};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SOURCE].o.lanes = 1;
	opened();
	pair_start(&p, 100);
	assert_true(await_count(&g.there, 1));
	assert_true(await_count(&p.ends[SOURCE].jobs[0].done, 4));
	pause_ms(200);
	assert_int_equal(p.ends[SOURCE].jobs[0].done, 4);
	atomic_store(&g.open, true);
	finished();
}

/* lane_flush returns when all credits are back. */
static void test_flush_waits_for_the_last_credit(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 2};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SOURCE].o.lanes = 1;
	opened();
	pair_start(&p, 3);
	assert_true(await_count(&g.there, 1));
	assert_true(await_count(&p.ends[SOURCE].jobs[0].done, 3));
	assert_false(worker_join_until(&p.ends[SOURCE].jobs[0].worker, clock_ms() + 200));
	atomic_store(&g.open, true);
	finished();
}

/* ---- recovery is fenced -------------------------------------------------------------------------
 */

/*
 * When a connection breaks, the source sends LANE_DOWN(lane, epoch), and the sink answers
 * LANE_STORED(lane, n). The source frees n blocks and sends the rest, in order, over a new
 * connection of the same lane with epoch + 1.
 */
static void test_broken_lane_resumes_where_it_stopped(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 10};
	struct seen down, stored;
	struct lane_stats st;

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SOURCE].o.lanes = 1;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 200);
	assert_true(await_count(&g.there, 1));
	/* Ten blocks are stored, the sink holds one, and more are in flight. */
	assert_true(await_count(&p.ends[SOURCE].jobs[0].done, 12));
	cut_lanes();
	assert_true(pair_await(&p, SOURCE, MSG_LANE_DOWN, 1));
	atomic_store(&g.open, true);
	finished();
	down = pair_nth(&p, SOURCE, MSG_LANE_DOWN, 0);
	stored = pair_nth(&p, SINK, MSG_LANE_STORED, 0);
	assert_int_equal(down.lane, 0);
	assert_int_equal(down.epoch, 0);
	assert_int_equal(stored.lane, 0);
	assert_int_equal(stored.epoch, 0);
	/* The block that the sink held was written by then. */
	assert_true(stored.stored >= 11);
	assert_false(stored.damaged);
	st = lane_of(SOURCE, 0);
	assert_int_equal(st.epochs, 2);
	assert_true(st.resent <= 4);
	assert_int_equal(pair_seen(&p, SINK, MSG_LANE_STORED), 1);
}

/*
 * The sink drops unwritten blocks and answers only when its thread is out of file calls; until then
 * the source retransmits nothing.
 */
static void test_sink_answers_only_when_out_of_file_calls(void **state)
{
	struct gate g = {.end = SINK, .lane = 1, .number = 5};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 300);
	assert_true(await_count(&g.there, 1));
	cut_lanes();
	/* Lane 0 may have sent everything by now. */
	assert_true(pair_await(&p, SOURCE, MSG_LANE_DOWN, 1));
	/* Its thread is in no file call, so it is mended; lane 1 is not. */
	assert_true(await_count(&p.ends[SINK].jobs[0].done, 300));
	pause_ms(300);
	for (unsigned i = 0; i < pair_seen(&p, SINK, MSG_LANE_STORED); i++)
		assert_int_equal(pair_nth(&p, SINK, MSG_LANE_STORED, i).lane, 0);
	assert_int_equal(lane_of(SOURCE, 1).epochs, 1);
	assert_int_equal(lane_of(SOURCE, 1).resent, 0);
	assert_int_equal(p.ends[SINK].jobs[1].done, 5);
	atomic_store(&g.open, true);
	finished();
	assert_int_equal(lane_of(SOURCE, 1).epochs, 2);
}

static enum verdict hold_stored(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
				uint32_t *len)
{
	(void)pair;
	(void)from;
	(void)body;
	(void)len;
	return type == MSG_LANE_STORED ? HOLD : PASS;
}

/* The source waits for LANE_STORED without a time limit. */
static void test_nothing_is_retransmitted_before_lane_stored(void **state)
{
	struct gate g = {.end = SINK, .lane = EVERY_LANE, .number = 20};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.filter = hold_stored;
	p.ends[SOURCE].o.timeout_ms = 1000;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 300);
	/* No lane has sent everything, so each one has to be mended. */
	assert_true(await_count(&g.there, 2));
	cut_lanes();
	atomic_store(&g.open, true);
	assert_true(pair_await(&p, SINK, MSG_LANE_STORED, 2));
	/* Longer than the timeout, which applies to connecting. */
	pause_ms(1500);
	assert_int_equal(p.proxy.came, 2);
	assert_int_equal(lane_of(SOURCE, 0).resent, 0);
	assert_int_equal(lane_of(SOURCE, 1).resent, 0);
	pair_release(&p);
	finished();
	assert_int_equal(p.proxy.came, 4);
}

/* Blocks are never retransmitted over another lane. */
static void test_lane_never_carries_blocks_of_another(void **state)
{
	struct gate g = {.end = SOURCE, .lane = 0, .number = 150};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.filter = hold_stored;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 300);
	assert_true(await_count(&g.there, 1));
	assert_true(await_count(&p.ends[SOURCE].jobs[1].done, 300));
	cut_lanes();
	pause_ms(300);
	/* Lane 1 has nothing more to send, lane 0 has half of its blocks left. */
	assert_true(p.ends[SINK].jobs[0].done <= 150);
	atomic_store(&g.open, true);
	pause_ms(200);
	assert_true(p.ends[SINK].jobs[0].done <= 150);
	pair_release(&p);
	/* Each block names its lane, and the sinks check that. */
	finished();
	assert_int_equal(lane_of(SOURCE, 1).blocks, 300);
}

/* A block that arrives damaged is detected and sent once more. */
static void test_damaged_block_is_retransmitted_once(void **state)
{
	bool damaged = false;

	(void)state;
	p.ends[SOURCE].o.lanes = 1;
	atomic_store(&p.proxy.flips, 1);
	atomic_store(&p.proxy.flip_at, 20000);
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 200);
	finished();
	for (unsigned i = 0; i < pair_seen(&p, SINK, MSG_LANE_STORED); i++)
		damaged |= pair_nth(&p, SINK, MSG_LANE_STORED, i).damaged;
	assert_true(damaged);
	assert_int_equal(lane_of(SOURCE, 0).epochs, 2);
}

/* The same block damaged twice: the session fails at both ends with 41. */
static void test_block_damaged_twice_fails_the_session(void **state)
{
	struct failure f;
	char host[HOST_MAX];

	(void)state;
	p.ends[SOURCE].o.lanes = 1;
	/* In the first block, which is also the first one on the second connection. */
	atomic_store(&p.proxy.flips, 2);
	atomic_store(&p.proxy.flip_at, LANE_HELLO_SIZE + LANE_HEAD + 3);
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 200);
	assert_int_equal(pair_finish(&p), -1);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_INTEGRITY);
		assert_non_null(strstr(f.text, "damaged twice"));
	}
	assert_string_equal(host, "");
	session_failed(p.ends[SOURCE].s, &f, host);
	assert_string_equal(host, "far");
	assert_int_equal(p.ends[SINK].jobs[0].done, 0);
}

/* Without a connection within --timeout the session fails. */
static void no_way_back(void)
{
	struct failure f;
	char host[HOST_MAX];
	struct gate g = {.end = SINK, .lane = 0, .number = 20, .open = true};
	uint64_t before;

	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SINK].o.timeout_ms = 1000;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 1u << 30);
	assert_true(await_count(&g.there, 1));
	await_lanes();
	atomic_store(&p.proxy.closed, true);
	before = clock_ms();
	cut_lanes();
	assert_int_equal(pair_finish(&p), -1);
	assert_true(clock_ms() - before < 10000);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_PEER_LOST);
		assert_non_null(strstr(f.text, "could not be reconnected within 1 s"));
	}
	/* More than one attempt was made. */
	assert_true(p.proxy.came > 4);
}

static void test_session_fails_without_reconnection_in_time(void **state)
{
	(void)state;
	no_way_back();
}

static void test_session_with_listening_source_fails_without_reconnection(void **state)
{
	(void)state;
	p.ends[SOURCE].o.listens = true;
	p.ends[SINK].o.listens = false;
	no_way_back();
}

/* The session survives an outage shorter than the timeout. */
static void test_short_outage_is_survived(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 20, .open = true};

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 2000);
	assert_true(await_count(&g.there, 1));
	await_lanes();
	atomic_store(&p.proxy.closed, true);
	cut_lanes();
	pause_ms(1500);
	atomic_store(&p.proxy.closed, false);
	finished();
}

/*
 * A source that is blocked in read, or a sink that is blocked in write, for longer than the timeout
 * is no failure: the time runs only while both ends are there to connect.
 */
static void away_for_long(unsigned who, bool source_listens)
{
	struct gate g = {.end = who, .lane = 0, .number = 30};

	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SOURCE].o.listens = source_listens;
	p.ends[SINK].o.listens = !source_listens;
	p.ends[SOURCE].o.timeout_ms = 1000;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 200);
	assert_true(await_count(&g.there, 1));
	cut_lanes();
	pause_ms(3500);
	atomic_store(&g.open, true);
	finished();
	assert_int_equal(lane_of(SOURCE, 0).epochs, 2);
}

static void test_lane_breaks_while_source_is_blocked(void **state)
{
	(void)state;
	away_for_long(SOURCE, false);
}

static void test_lane_breaks_while_listening_source_is_blocked(void **state)
{
	(void)state;
	away_for_long(SOURCE, true);
}

static void test_lane_breaks_while_sink_is_blocked(void **state)
{
	(void)state;
	away_for_long(SINK, false);
}

static void test_lane_breaks_while_connecting_sink_is_blocked(void **state)
{
	(void)state;
	away_for_long(SINK, true);
}

/* Lanes break repeatedly: each block arrives once, in order. */
static void again_and_again(bool source_listens)
{
	uint64_t deadline = clock_ms() + 40000;
	unsigned cuts = 0;

	p.ends[SOURCE].o.listens = source_listens;
	p.ends[SINK].o.listens = !source_listens;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 20000);
	while (cuts < 40 && clock_left(deadline) > 0 &&
	       atomic_load(&p.ends[SINK].jobs[0].done) < 15000) {
		uint64_t now = atomic_load(&p.ends[SINK].jobs[0].done);

		cut_lanes();
		cuts++;
		await_count(&p.ends[SINK].jobs[0].done, now + 20);
	}
	finished();
	assert_true(cuts > 5);
	assert_true(lane_of(SOURCE, 0).epochs > 5);
}

static void test_repeatedly_broken_lanes_deliver_everything(void **state)
{
	(void)state;
	again_and_again(false);
}

static void test_repeatedly_broken_lanes_of_a_listening_source_deliver_everything(void **state)
{
	(void)state;
	again_and_again(true);
}

/*
 * An attempt that failed at one end succeeded at the other: both ends still agree on one wire, at
 * the first connection and when mending.
 */
static void only_the_other_end_survives(bool source_listens)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 20};

	p.arg = &g;
	p.work = stand_at_gate;
	p.ends[SOURCE].o.listens = source_listens;
	p.ends[SINK].o.listens = !source_listens;
	atomic_store(&p.proxy.mutes, 1);
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 300);
	assert_true(await_count(&g.there, 1));
	atomic_store(&p.proxy.mutes, 5);
	cut_lanes();
	atomic_store(&g.open, true);
	finished();
	assert_int_equal(p.proxy.mutes, 0);
}

static void test_attempt_that_succeeded_only_at_the_sink_is_replaced(void **state)
{
	(void)state;
	only_the_other_end_survives(false);
}

static void test_attempt_that_succeeded_only_at_the_source_is_replaced(void **state)
{
	(void)state;
	only_the_other_end_survives(true);
}

/* Loss of the control channel ends the session soon, at both ends, whatever they wait for. */
static void test_control_channel_loss_ends_the_session(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 20};
	struct failure f;
	char host[HOST_MAX];
	uint64_t before;

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	opened();
	pair_start(&p, 1u << 30);
	assert_true(await_count(&g.there, 1));
	before = clock_ms();
	pair_cut(&p);
	while (!(session_failed(p.ends[SOURCE].s, &f, host) &&
		 session_failed(p.ends[SINK].s, &f, host)) &&
	       clock_ms() - before < 10000)
		pause_ms(5);
	assert_true(clock_ms() - before < 2000);
	atomic_store(&g.open, true);
	assert_int_equal(pair_finish(&p), -1);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(session_failed(p.ends[i].s, &f, host));
		assert_int_equal(f.code, OUT_PEER_LOST);
		assert_string_equal(host, "");
		assert_non_null(strstr(f.text, i == SOURCE ? "lost the connection to far: "
							   : "lost the connection to near: "));
		assert_int_equal(pair_fails(&p, i), 1);
	}
}

/* Nor does the session hang while lanes are being mended. */
static void test_control_channel_loss_while_mending_ends_the_session(void **state)
{
	struct gate g = {.end = SINK, .lane = 0, .number = 20, .open = true};
	uint64_t before;

	(void)state;
	p.arg = &g;
	p.work = stand_at_gate;
	p.filter = hold_stored;
	assert_int_equal(pair_use_proxy(&p), 0);
	opened();
	pair_start(&p, 1u << 30);
	assert_true(await_count(&g.there, 1));
	cut_lanes();
	assert_true(pair_await(&p, SINK, MSG_LANE_STORED, 2));
	before = clock_ms();
	pair_cut(&p);
	assert_int_equal(pair_finish(&p), -1);
	assert_true(clock_ms() - before < 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_unwritten_block_is_not_credited),
		T(test_block_is_lent_again_only_when_stored),
		T(test_flush_waits_for_the_last_credit),
		T(test_broken_lane_resumes_where_it_stopped),
		T(test_sink_answers_only_when_out_of_file_calls),
		T(test_nothing_is_retransmitted_before_lane_stored),
		T(test_lane_never_carries_blocks_of_another),
		T(test_damaged_block_is_retransmitted_once),
		T(test_block_damaged_twice_fails_the_session),
		T(test_session_fails_without_reconnection_in_time),
		T(test_session_with_listening_source_fails_without_reconnection),
		T(test_short_outage_is_survived),
		T(test_lane_breaks_while_source_is_blocked),
		T(test_lane_breaks_while_listening_source_is_blocked),
		T(test_lane_breaks_while_sink_is_blocked),
		T(test_lane_breaks_while_connecting_sink_is_blocked),
		T(test_repeatedly_broken_lanes_deliver_everything),
		T(test_repeatedly_broken_lanes_of_a_listening_source_deliver_everything),
		T(test_attempt_that_succeeded_only_at_the_sink_is_replaced),
		T(test_attempt_that_succeeded_only_at_the_source_is_replaced),
		T(test_control_channel_loss_ends_the_session),
		T(test_control_channel_loss_while_mending_ends_the_session),
#undef T
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("mend", tests, NULL, NULL);
}
