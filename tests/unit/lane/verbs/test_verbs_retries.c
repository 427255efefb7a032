/* SPDX-License-Identifier: Apache-2.0 */

/* How long and how often the adapter that SLUICE_TRANSPORT names repeats what is not acknowledged.
 * With SLUICE_LOSSY its link loses packets. */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/clock.h"
#include "lane/verbs/verbs_impl.h"
#include "lane_pair.h"
#include "verbs_door.h"

enum { LIMIT_MS = 60000, SKIPPED = 77, RNR_FOR_EVER = 7 };

static const struct lane_key key = {.secret = "of the session", .nonces = {"a", "b"}};

/* ---- a wire and its two queue pairs ----------------------------------------------------- */

struct taking {
	struct door *door;
	struct lane *lane;
	struct wire *wire;
	pthread_t thread;
};

static void *take_thread(void *arg)
{
	struct taking *t = arg;

	host_enter(&far);
	if (door_take(t->door, t->lane, 0, &key, clock_ms() + LIMIT_MS, &t->wire))
		t->wire = NULL;
	return NULL;
}

static void *dial_thread(void *arg)
{
	struct taking *t = arg;

	host_enter(&near);
	if (door_dial(t->door, t->lane, 0, &key, clock_ms() + LIMIT_MS, &t->wire)) {
		print_error("%s\n", failed()->text);
		t->wire = NULL;
	}
	return NULL;
}

static struct lane *open_lane(enum lane_side side, int timeout_ms, uint32_t rtt_us)
{
	struct lane_setup how = {.side = side,
				 .depth = 4,
				 .block_size = LANE_BLOCK_MIN,
				 .timeout_ms = timeout_ms,
				 .rtt_us = rtt_us,
				 .rdma_op = door_op,
				 .mend = door_never};
	struct lane *l;

	assert_int_equal(lane_open(&how, &l), 0);
	return l;
}

static struct ibv_qp_attr attributes_of(const struct wire *w)
{
	const struct verbs *v = (const struct verbs *)w;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(v->id->qp, &attr,
				      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					      IBV_QP_MIN_RNR_TIMER,
				      &init),
			 0);
	return attr;
}

/* Connects a wire whose ends have this timeout and round-trip time, and reads both queue pairs.
 * Returns what the dialing end found its adapter to be: the transport's name need not say it. */
static struct verbs_adapter read_both(int timeout_ms, uint32_t rtt_us, struct ibv_qp_attr both[2])
{
	struct verbs_adapter adapter;
	struct door door;
	struct taking there = {.door = &door, .lane = open_lane(LANE_SINK, timeout_ms, rtt_us)},
		      here = {.door = &door, .lane = open_lane(LANE_SOURCE, timeout_ms, rtt_us)};

	assert_int_equal(door_open(&door, NULL), 0);
	assert_int_equal(pthread_create(&there.thread, NULL, take_thread, &there), 0);
	assert_int_equal(pthread_create(&here.thread, NULL, dial_thread, &here), 0);
	pthread_join(here.thread, NULL);
	pthread_join(there.thread, NULL);
	assert_true(here.wire && there.wire);
	both[0] = attributes_of(here.wire);
	both[1] = attributes_of(there.wire);
	adapter = ((struct verbs *)here.wire)->adapter;
	here.wire->ops->close(here.wire);
	there.wire->ops->close(there.wire);
	lane_close(here.lane);
	lane_close(there.lane);
	door_close(&door);
	return adapter;
}

/* Whether Sluice chooses the times and retries of this adapter. */
static bool has_times(const struct verbs_adapter *a)
{
	return a->kind != ADAPTER_IWARP && !a->rxe;
}

/* 4.096 us * 2^n, for the first try and all others. */
static uint64_t tries_ms(const struct ibv_qp_attr *a)
{
	return ((uint64_t)4096 << a->timeout) * (a->retry_cnt + 1u) / 1000000;
}

static void test_a_dead_path_is_noticed_within_the_timeout(void **state)
{
	struct ibv_qp_attr both[2];

	(void)state;
	for (int timeout_ms = 2000; timeout_ms <= 60000; timeout_ms *= 2) {
		struct verbs_adapter a = read_both(timeout_ms, 0, both);

		if (!has_times(&a))
			skip();
		for (int i = 0; i < 2; i++) {
			assert_int_equal(both[i].retry_cnt, 7);
			assert_true(tries_ms(&both[i]) <= (uint64_t)timeout_ms);
			assert_true(tries_ms(&both[i]) >= 500);
		}
	}
}

/* Its switches hold packets up. */
static void test_infiniband_is_given_all_of_the_timeout(void **state)
{
	struct ibv_qp_attr both[2];
	struct verbs_adapter a = read_both(15000, 0, both);

	(void)state;
	if (a.kind != ADAPTER_INFINIBAND)
		skip();
	for (int i = 0; i < 2; i++)
		assert_in_range(tries_ms(&both[i]), 15000 / 2 + 1, 15000);
}

/* The connection manager's own value would stop the peer's sends for 655 ms. */
static void test_a_receiver_that_is_not_ready_costs_less_than_a_millisecond(void **state)
{
	struct ibv_qp_attr both[2];
	struct verbs_adapter a = read_both(15000, 0, both);

	(void)state;
	if (!has_times(&a))
		skip();
	for (int i = 0; i < 2; i++)
		assert_int_equal(both[i].min_rnr_timer, 12); /* 0.64 ms */
}

/* Except on the software adapters, where a mistake of ours must show (verbs_impl.h). An iWARP
 * adapter has no such retries to read. */
static void test_a_receiver_that_is_not_ready_is_waited_for(void **state)
{
	struct ibv_qp_attr both[2];
	struct verbs_adapter a = read_both(15000, 0, both);
	struct verbs asked = {.adapter = a};

	(void)state;
	assert_int_equal(verbs_rnr_retry_count(&asked), a.rxe || a.siw ? 0 : RNR_FOR_EVER);
	for (int i = 0; i < 2 && a.kind != ADAPTER_IWARP; i++)
		assert_int_equal(both[i].rnr_retry, a.rxe ? 0 : RNR_FOR_EVER);
}

/* Switches of RoCE drop packets. */
static void test_a_lost_last_packet_costs_milliseconds_on_roce(void **state)
{
	struct ibv_qp_attr both[2];
	struct verbs_adapter a = read_both(60000, 10000, both);

	(void)state;
	if (!has_times(&a) || a.kind != ADAPTER_ROCE)
		skip();
	for (int i = 0; i < 2; i++)
		assert_in_range((uint64_t)4096 << both[i].timeout, 10000000, 100000000);
}

static void test_a_long_way_is_not_taken_for_a_loss(void **state)
{
	struct ibv_qp_attr both[2];
	struct verbs_adapter a = read_both(2000, 100000, both);

	(void)state;
	if (!has_times(&a))
		skip();
	for (int i = 0; i < 2; i++)
		assert_true((uint64_t)4096 << both[i].timeout >= 4 * 100000000ULL);
}

/* ---- losses ----------------------------------------------------------------------------- */

static int setup(void **state)
{
	struct door *d = calloc(1, sizeof *d);

	*state = d;
	return d ? door_open(d, NULL) : -1;
}

static void teardown(void *state)
{
	door_close(state);
	free(state);
}

static int join(void *state, struct lane *l, uint32_t epoch, const struct lane_key *k,
		uint64_t deadline_ms, struct wire **out)
{
	host_enter(lane_side_of(l) == LANE_SINK ? &far : &near);
	return lane_side_of(l) == LANE_SINK ? door_take(state, l, epoch, k, deadline_ms, out)
					    : door_dial(state, l, epoch, k, deadline_ms, out);
}

static struct backend backend = {"verbs", RDMA_OP_SEND, setup, teardown, join, 0, 0, 0};

static void test_losses_do_not_stop_a_lane_for_seconds(void **state)
{
	struct pair p;
	void *door;
	struct job source = {.pair = &p, .blocks = 100}, sink = {.pair = &p};
	uint64_t begun;

	(void)state;
	if (!getenv("SLUICE_LOSSY"))
		skip();
	assert_int_equal(backend.setup(&door), 0);
	assert_int_equal(pair_open(&p, &backend, door, 0, 4, 64 << 10, NULL), 0);
	begun = clock_ms();
	job_start(&sink, sink_job);
	job_start(&source, source_job);
	assert_true(job_join(&source, LIMIT_MS));
	print_message("100 blocks took %d ms\n", (int)(clock_ms() - begun));
	assert_true(clock_ms() - begun < 4000);
	pair_end(&p);
	assert_true(job_join(&sink, LIMIT_MS));
	assert_int_equal(source.rc, 0);
	assert_int_equal(sink.done, 100);
	assert_int_equal(p.source.has, 1); /* one wire */
	pair_close(&p);
	backend.teardown(door);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_dead_path_is_noticed_within_the_timeout),
		cmocka_unit_test(test_infiniband_is_given_all_of_the_timeout),
		cmocka_unit_test(test_a_receiver_that_is_not_ready_costs_less_than_a_millisecond),
		cmocka_unit_test(test_a_receiver_that_is_not_ready_is_waited_for),
		cmocka_unit_test(test_a_lost_last_packet_costs_milliseconds_on_roce),
		cmocka_unit_test(test_a_long_way_is_not_taken_for_a_loss),
		cmocka_unit_test(test_losses_do_not_stop_a_lane_for_seconds),
	};

	signal(SIGPIPE, SIG_IGN); /* siw increments it: see lane.h */
	if (!hosts_find()) {
		fputs("no RDMA adapter is named in SLUICE_TRANSPORT\n", stderr);
		return SKIPPED;
	}
	backend.op = door_op;
	return cmocka_run_group_tests_name("verbs retries", tests, NULL, NULL);
}
