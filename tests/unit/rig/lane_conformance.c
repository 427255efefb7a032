/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"

enum {
	LONG_MS = 60000, /* limit for steps that must happen; no rate is implied; multiplied by slow
			  */
	SOON_MS = 2000, /* limit that lane_abort() promises */
	QUIET_MS = 150, /* long enough for a wrong step to show */
	SMALL = 4096,
	MIDDLE = 16384,
	LARGE = 262144,
};

static const struct backend *backend;
static void *state;
static unsigned slow = 1; /* factor for promised times, in the lab */
static unsigned often = 1; /* factor for random tests, in long runs */

/* One complete transfer: both threads, the source's result, then the sink's. */
struct run {
	struct pair pair;
	struct job source, sink;
	struct lane_stats from, to;
	bool hung;
};

static uint32_t any_size(unsigned i, uint32_t block_size)
{
	uint32_t sizes[] = {block_size, 1, 0, block_size - 1, 4096, 65, block_size / 2 + 3, 63};

	return sizes[i % 8];
}

static void run_open(struct run *r, unsigned index, uint32_t depth, uint32_t block_size,
		     const struct plan *plan)
{
	memset(r, 0, sizeof *r);
	assert_int_equal(pair_open(&r->pair, backend, state, index, depth, block_size, plan), 0);
	r->source.pair = r->sink.pair = &r->pair;
	r->source.size = r->sink.size = any_size;
}

static void run_start(struct run *r)
{
	job_start(&r->sink, sink_job);
	job_start(&r->source, source_job);
}

/* The part after run_start(), without assertions, so that two can run at a time. */
static void run_finish(struct run *r)
{
	r->hung = !job_join(&r->source, LONG_MS * slow);
	pair_end(&r->pair);
	if (r->hung)
		r->hung = !job_join(&r->source, SOON_MS * slow);
	r->hung |= !job_join(&r->sink, SOON_MS * 5 * slow);
	if (r->hung) {
		fprintf(stderr, "a thread hangs\n");
		abort();
	}
	lane_stats(r->pair.source.lane, &r->from);
	lane_stats(r->pair.sink.lane, &r->to);
	pair_close(&r->pair);
}

static void assert_whole(const struct run *r)
{
	if (r->source.rc)
		print_error("source: %s\n", r->source.failure.text);
	if (r->pair.first.code != OUT_DONE)
		print_error("first: %s: %s\n", r->pair.first_by, r->pair.first.text);
	assert_int_equal(r->pair.first.code, OUT_DONE);
	assert_int_equal(r->source.rc, 0);
	assert_string_equal(r->sink.wrong, "");
	assert_int_equal(r->sink.done, r->source.blocks);
	assert_int_equal(r->source.stored_at_flush, r->source.blocks);
	assert_int_equal(r->from.blocks, r->source.blocks);
	assert_int_equal(r->to.blocks, r->source.blocks);
	assert_int_equal(r->from.bytes, r->to.bytes);
}

static void transfer(struct run *r, unsigned blocks, uint32_t depth, uint32_t block_size,
		     const struct plan *plan)
{
	run_open(r, 0, depth, block_size, plan);
	r->source.blocks = blocks;
	run_start(r);
	run_finish(r);
}

/* ---- moving blocks -------------------------------------------------------------------- */

static void test_blocks_arrive_in_order_and_whole(void **arg)
{
	uint32_t depths[] = {1, 2, 3, 12, 64};
	struct run r;

	(void)arg;
	for (unsigned i = 0; i < sizeof depths / sizeof depths[0]; i++) {
		transfer(&r, 250, depths[i], MIDDLE, NULL);
		assert_whole(&r);
		assert_int_equal(r.from.epochs, 1);
		assert_int_equal(r.from.resent, 0);
		assert_in_range(r.from.window, MIDDLE, depths[i] * MIDDLE);
	}
}

static uint32_t each_size(unsigned i, uint32_t block_size)
{
	return i <= block_size ? i : block_size;
}

static uint32_t sampled_size(unsigned i, uint32_t block_size)
{
	uint32_t around[] = {0, 64, 4096, 65536, block_size / 2, block_size};
	uint32_t mid = around[i / 5 % 6];
	int64_t n = (int64_t)mid + (int)(i % 5) - 2;

	return n < 0 || n > block_size ? mid : (uint32_t)n;
}

static void test_every_block_size_works(void **arg)
{
	struct run r;

	(void)arg;
	run_open(&r, 0, 8, SMALL, NULL);
	r.source.blocks = SMALL + 1;
	r.source.size = r.sink.size = each_size;
	run_start(&r);
	run_finish(&r);
	assert_whole(&r);

	run_open(&r, 0, 4, LARGE, NULL);
	r.source.blocks = 60;
	r.source.size = r.sink.size = sampled_size;
	run_start(&r);
	run_finish(&r);
	assert_whole(&r);
}

/*
 * A sink that puts nothing back stops its source when all the source's blocks are sent. How many
 * large blocks the network buffers is not tested.
 */
static void stop_sink(uint32_t depth, uint32_t block_size, unsigned least)
{
	atomic_bool gate = false;
	unsigned sent;
	bool filled;
	struct run r;

	run_open(&r, 0, depth, block_size, NULL);
	r.source.blocks = 50;
	r.source.size = r.sink.size = NULL;
	r.sink.gate = &gate;
	run_start(&r);
	filled = wait_count(&r.source.done, least, LONG_MS * slow);
	sleep_ms(QUIET_MS);
	sent = atomic_load(&r.source.done);
	atomic_store(&gate, true);
	run_finish(&r);
	assert_true(filled);
	assert_in_range(sent, least, depth);
	assert_whole(&r);
}

static void test_stopped_sink_stops_its_source(void **arg)
{
	uint32_t depths[] = {1, 3, 12};

	(void)arg;
	for (unsigned i = 0; i < sizeof depths / sizeof depths[0]; i++) {
		stop_sink(depths[i], SMALL, depths[i]);
		stop_sink(depths[i], LARGE, 0);
	}
}

/* Each end states its own depth; the source never has more blocks in flight than the smaller. */
static void test_source_obeys_the_depth_of_the_wire(void **arg)
{
	static const struct {
		uint32_t source, sink;
	} states[] = {{3, 0}, {1, 0}, {0, 3}, {0, 1}, {5, 2}, {2, 5}, {11, 12}};

	(void)arg;
	for (unsigned i = 0; i < sizeof states / sizeof states[0]; i++) {
		uint32_t source = states[i].source ? states[i].source : 12;
		uint32_t sink = states[i].sink ? states[i].sink : 12;
		struct plan plan = {.source_states = states[i].source,
				    .sink_states = states[i].sink};
		struct run r;

		transfer(&r, 60, 12, SMALL, &plan);
		assert_whole(&r);
		assert_false(r.pair.exceeded);
		assert_int_equal(r.from.window,
				 (source < sink || r.pair.mute ? source : sink) * SMALL);
	}
}

/* The blocks of a wire that broke are more than the next wire may carry at a time. */
static void test_blocks_are_resent_within_the_depth_of_the_wire(void **arg)
{
	struct plan plan = {0};

	(void)arg;
	for (plan.sink_states_later = 1; plan.sink_states_later < 6; plan.sink_states_later += 2) {
		atomic_bool gate = false;
		struct run r;
		bool filled;

		run_open(&r, 0, 12, SMALL, &plan);
		r.source.blocks = 60;
		r.sink.gate = &gate;
		run_start(&r);
		filled = wait_count(&r.source.done, 12, LONG_MS * slow) &&
			 wait_count(&r.sink.held, 1, LONG_MS * slow);
		lane_break(r.pair.source.lane, 0, "told so");
		lane_break(r.pair.sink.lane, 0, "told so");
		atomic_store(&gate, true);
		run_finish(&r);
		assert_true(filled);
		assert_whole(&r);
		assert_int_equal(r.from.epochs, 2);
		assert_int_equal(r.from.resent, 11);
		assert_false(r.pair.exceeded);
	}
}

/* Fewer puts than a batch of credits: the credits must be sent nevertheless, and not too early. */
static void test_flush_waits_for_exactly_the_last_put(void **arg)
{
	(void)arg;
	for (unsigned blocks = 0; blocks < 6; blocks++) {
		struct run r;

		run_open(&r, 0, 32, SMALL, NULL);
		r.source.blocks = blocks;
		r.sink.hold_at = blocks - 1;
		r.sink.hold_ms = 30;
		run_start(&r);
		run_finish(&r);
		assert_whole(&r);
	}
}

/* Also when the wire breaks and when a block is damaged. */
static void test_records_are_copied_when_the_peer_can_write(void **arg)
{
	enum deed deeds[] = {DEED_NONE, DEED_CUT_BEFORE, DEED_DAMAGE_DATA, DEED_DAMAGE_HEAD};

	(void)arg;
	for (unsigned i = 0; i < sizeof deeds / sizeof deeds[0]; i++) {
		struct plan plan = {.exposed = true, .deed = deeds[i], .step = STEP_RECV, .at = 10};
		struct run r;

		run_open(&r, 0, 3, MIDDLE, &plan);
		r.source.size = r.sink.size = NULL;
		r.source.blocks = 40;
		run_start(&r);
		run_finish(&r);
		assert_whole(&r);
	}
}

static void test_two_lanes_run_at_once(void **arg)
{
	struct plan plan = {.deed = DEED_CUT_AFTER, .step = STEP_SEND, .at = 50};
	struct run r[2];

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		run_open(&r[i], i, 6, MIDDLE, i ? &plan : NULL);
		r[i].source.blocks = 300;
	}
	for (unsigned i = 0; i < 2; i++)
		run_start(&r[i]);
	for (unsigned i = 0; i < 2; i++)
		run_finish(&r[i]);
	for (unsigned i = 0; i < 2; i++)
		assert_whole(&r[i]);
	assert_int_equal(r[0].from.epochs, 1);
	assert_int_equal(r[1].from.epochs, 2);
}

/* ---- breaking and mending ------------------------------------------------------------- */

/* The connection breaks at each step of either end, and the other end must detect that itself. */
static void cut_everywhere(enum step step, enum deed deed, unsigned most)
{
	/* In the lab each connection takes long, and there are two operations. */
	unsigned stride = slow > 1 && often == 1 ? 2 : 1;

	for (unsigned at = 0; at < most; at += stride) {
		struct plan plan = {.deed = deed, .step = step, .at = at, .alone = true};
		struct run r;

		transfer(&r, 14, at / stride % 2 ? 3 : 5, MIDDLE, &plan);
		assert_whole(&r);
		/* The number of grants is random. */
		if (step == STEP_GRANT)
			assert_in_range(r.from.epochs, 1, 2);
		else
			assert_int_equal(r.from.epochs, 2);
	}
}

static void test_break_before_a_send(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_SEND, DEED_CUT_BEFORE, 14);
}

static void test_break_after_a_send(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_SEND, DEED_CUT_AFTER, 14);
}

static void test_break_before_a_credit(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_CREDIT, DEED_CUT_BEFORE, 14);
}

static void test_break_after_a_credit(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_CREDIT, DEED_CUT_AFTER, 14);
}

static void test_break_before_a_receive(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_RECV, DEED_CUT_BEFORE, 14);
}

static void test_break_after_a_receive(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_RECV, DEED_CUT_AFTER, 14);
}

static void test_break_at_a_post(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_POST, DEED_CUT_BEFORE, 14);
	cut_everywhere(STEP_POST, DEED_CUT_AFTER, 14);
}

static void test_break_at_a_grant(void **arg)
{
	(void)arg;
	cut_everywhere(STEP_GRANT, DEED_CUT_BEFORE, 10);
	cut_everywhere(STEP_GRANT, DEED_CUT_AFTER, 10);
}

/* The peer reports a break, repeatedly, at any moment. */
static void test_repeatedly_broken_lane_delivers_everything(void **arg)
{
	unsigned breaks = 0, seed = 1;
	uint64_t last = 0, end = clock_ms() + LONG_MS * slow;
	atomic_bool more = true;
	struct run r;

	(void)arg;
	run_open(&r, 0, 5, MIDDLE, NULL);
	r.source.blocks = 1000;
	/* However rarely this thread runs, the others have work in between. */
	r.source.more = &more;
	run_start(&r);
	while (breaks < 60 * often && clock_ms() < end && !lane_aborted(r.pair.source.lane)) {
		struct lane *l = rand_r(&seed) % 2 ? r.pair.source.lane : r.pair.sink.lane;
		uint64_t stored = lane_stored(r.pair.sink.lane);
		struct lane_stats s;

		/* Only after some progress: a lane without progress is given up. */
		if (stored > last) {
			last = stored + (uint64_t)rand_r(&seed) % 20;
			lane_stats(l, &s);
			lane_break(l, s.epochs - 1, "told so");
			breaks++;
		}
		nanosleep(&(struct timespec){.tv_nsec = rand_r(&seed) % 300000}, NULL);
	}
	atomic_store(&more, false);
	run_finish(&r);
	assert_whole(&r);
	assert_true(breaks >= 10);
	assert_true(r.from.epochs > 5);
}

/*
 * The sink holds one of four sent blocks when the wire breaks. The source is informed too, or finds
 * out by servicing its lane.
 */
static void break_with_one_held(bool tends)
{
	atomic_bool gate = false;
	struct run r;
	bool filled;

	run_open(&r, 0, 4, SMALL, NULL);
	r.source.blocks = 4;
	r.source.tends = tends;
	r.sink.gate = &gate;
	run_start(&r);
	filled = wait_count(&r.source.done, 4, LONG_MS * slow) &&
		 wait_count(&r.sink.held, 1, LONG_MS * slow);
	if (!tends)
		lane_break(r.pair.source.lane, 0, "told so");
	lane_break(r.pair.sink.lane, 0, "told so");
	atomic_store(&gate, true);
	run_finish(&r);
	assert_true(filled);
	assert_whole(&r);
	assert_int_equal(r.from.resent, 3);
	assert_int_equal(r.from.epochs, 2);
}

/*
 * A block that the sink held when the wire broke counts as stored once it is put back, and is not
 * retransmitted.
 */
static void test_block_put_after_the_break_is_stored(void **arg)
{
	(void)arg;
	break_with_one_held(false);
}

/* A source that only services its lane now and then gets it mended as well. */
static void test_serviced_lane_is_mended(void **arg)
{
	(void)arg;
	break_with_one_held(true);
}

/*
 * A break of another epoch is ignored. One of this epoch is remembered even before the wire exists.
 */
static void test_break_applies_to_its_epoch(void **arg)
{
	atomic_bool gate = false;
	struct run r;
	bool filled;

	(void)arg;
	run_open(&r, 0, 4, SMALL, NULL);
	r.source.blocks = 40;
	lane_break(r.pair.source.lane, 7, "told so");
	run_start(&r);
	run_finish(&r);
	assert_whole(&r);
	assert_int_equal(r.from.epochs, 1);

	/* Another break while a wire exists. */
	run_open(&r, 0, 4, SMALL, NULL);
	r.source.blocks = 4;
	r.sink.gate = &gate;
	run_start(&r);
	filled = wait_count(&r.source.done, 4, LONG_MS * slow);
	for (uint32_t epoch = 1; epoch < 4; epoch++) {
		lane_break(r.pair.source.lane, epoch, "told so");
		lane_break(r.pair.sink.lane, epoch, "told so");
	}
	atomic_store(&gate, true);
	run_finish(&r);
	assert_true(filled);
	assert_whole(&r);
	assert_int_equal(r.from.epochs, 1);

	run_open(&r, 0, 4, SMALL, NULL);
	r.source.blocks = 40;
	lane_break(r.pair.sink.lane, 0, "told so");
	run_start(&r);
	run_finish(&r);
	assert_whole(&r);
	assert_int_equal(r.to.epochs, 2);
}

static void assert_ends(const struct run *r, enum outcome code, const char *by, const char *text)
{
	if (r->pair.first.code != code || !strstr(r->pair.first.text, text))
		print_error("%s: %d %s\n", r->pair.first_by ? r->pair.first_by : "nobody",
			    r->pair.first.code, r->pair.first.text);
	assert_int_equal(r->pair.first.code, code);
	assert_string_equal(r->pair.first_by, by);
	assert_non_null(strstr(r->pair.first.text, text));
	assert_string_equal(r->sink.wrong, "");
}

static void test_useless_connections_end_the_session(void **arg)
{
	struct plan plan = {.deed = DEED_CUT_BEFORE, .step = STEP_RECV, .at = 3, .times = 1000};
	struct run r;

	(void)arg;
	transfer(&r, 20, 4, SMALL, &plan);
	if (!strstr(r.pair.first.text, "in a row"))
		print_error("%s: %s\n", r.pair.first_by, r.pair.first.text);
	assert_int_equal(r.pair.first.code, OUT_PEER_LOST);
	assert_non_null(strstr(r.pair.first.text, "in a row"));
	assert_int_equal(r.sink.done, 3);
}

static void test_block_damaged_once_is_resent(void **arg)
{
	enum deed deeds[] = {DEED_DAMAGE_DATA, DEED_DAMAGE_HEAD};

	(void)arg;
	for (unsigned i = 0; i < 2; i++)
		for (unsigned at = 0; at < 20; at += 7) {
			struct plan plan = {.deed = deeds[i], .step = STEP_RECV, .at = at};
			struct run r;

			run_open(&r, 0, 6, MIDDLE, &plan);
			r.source.size = r.sink.size = NULL;
			r.source.blocks = 20;
			run_start(&r);
			run_finish(&r);
			assert_whole(&r);
			assert_int_equal(r.from.epochs, 2);
			assert_true(r.from.resent >= 1);
		}
}

static void test_block_damaged_twice_ends_the_session(void **arg)
{
	enum deed deeds[] = {DEED_DAMAGE_DATA, DEED_DAMAGE_HEAD};

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		struct plan plan = {.deed = deeds[i], .step = STEP_RECV, .at = 5, .times = 2};
		struct run r;

		run_open(&r, 0, 6, MIDDLE, &plan);
		r.source.size = r.sink.size = NULL;
		r.source.blocks = 20;
		run_start(&r);
		run_finish(&r);
		assert_ends(&r, OUT_INTEGRITY, "recv", "lane 0: block 5 arrived damaged twice");
		assert_int_equal(r.sink.done, 5);
		assert_int_equal(r.to.epochs, 2);
	}
}

/* ---- impossible peers -------------------------------------------------------------------- */

/* On an encrypted wire anybody may have forged them, so they are damage. */
static void test_forged_heads_end_the_session(void **arg)
{
	(void)arg;
	for (enum deed deed = DEED_FORGE_LANE; deed <= DEED_FORGE_KIND; deed++) {
		struct plan plan = {.deed = deed, .step = STEP_RECV, .at = 4};
		struct run r;

		transfer(&r, 20, 6, SMALL, &plan);
		if (r.pair.backend->cipher) {
			assert_whole(&r);
			assert_int_equal(r.to.epochs, 2);
			plan.times = 2;
			transfer(&r, 20, 6, SMALL, &plan);
			assert_ends(&r, OUT_INTEGRITY, "recv", "block 4 arrived damaged twice");
			assert_int_equal(r.sink.done, 4);
			continue;
		}
		assert_ends(&r, OUT_PROTOCOL, "recv", "");
		assert_int_equal(r.sink.done, 4);
		assert_int_equal(r.to.epochs, 1);
	}
}

static void test_forged_credits_end_the_session(void **arg)
{
	enum deed deeds[] = {DEED_CREDIT_MORE, DEED_CREDIT_BACK};

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		/* Every credit from the fortieth on, so that one can be smaller than before. */
		struct plan plan = {.deed = deeds[i], .step = STEP_CREDIT, .at = 40, .times = 1000};
		struct run r;

		transfer(&r, 200, 6, SMALL, &plan);
		assert_int_equal(r.pair.first.code, OUT_PROTOCOL);
		assert_non_null(strstr(r.pair.first.text, "the sink reports"));
		assert_int_equal(r.from.epochs, 1);
	}
}

static void test_false_stored_count_ends_the_session(void **arg)
{
	struct plan plan = {.lie_stored = true};
	struct run r;

	(void)arg;
	transfer(&r, 20, 4, SMALL, &plan);
	assert_ends(&r, OUT_PROTOCOL, "get", "the sink reports");
}

/* ---- ending ------------------------------------------------------------------------------ */

/* One end is brought into a wait, then aborted from this thread. */
static void abort_waiting(bool with_source, bool with_sink, unsigned blocks, uint32_t depth,
			  bool gated, bool ends)
{
	atomic_bool gate = false;
	bool source_left = true, sink_left = true;
	struct run r;

	run_open(&r, 0, depth, LARGE, NULL);
	r.source.size = r.sink.size = NULL;
	r.source.blocks = blocks;
	if (gated)
		r.sink.gate = &gate;
	if (with_sink)
		job_start(&r.sink, sink_job);
	if (with_source)
		job_start(&r.source, source_job);
	sleep_ms(QUIET_MS);
	if (ends)
		source_left = job_join(&r.source, LONG_MS * slow);
	pair_end(&r.pair);
	if (with_source && !ends)
		source_left = job_join(&r.source, SOON_MS * slow);
	if (with_sink)
		sink_left = job_join(&r.sink, SOON_MS * slow);
	if (!source_left || !sink_left) {
		fprintf(stderr, "abort was not heard\n");
		abort();
	}
	if (with_source)
		assert_int_equal(r.source.rc, ends ? 0 : -1);
	if (with_sink)
		assert_int_equal(r.sink.rc, -1);
	pair_close(&r.pair);
}

static void test_abort_ends_mending(void **arg)
{
	(void)arg;
	abort_waiting(true, false, 5, 4, false, false);
	abort_waiting(false, true, 0, 4, false, false);
}

static void test_abort_ends_recv(void **arg)
{
	(void)arg;
	abort_waiting(true, true, 1, 4, false, true);
}

static void test_abort_ends_get(void **arg)
{
	(void)arg;
	abort_waiting(true, true, 50, 4, true, false);
}

static void test_abort_ends_send(void **arg)
{
	(void)arg;
	/* More than any socket buffers. */
	abort_waiting(true, true, 200, 128, true, false);
}

static void test_abort_ends_flush(void **arg)
{
	(void)arg;
	abort_waiting(true, true, 3, 4, true, false);
}

/* After mending has checked for an abort for the last time. */
static void test_abort_before_attach_ends_the_lane(void **arg)
{
	struct plan plan = {.abort_attach = true};
	struct run r;

	(void)arg;
	run_open(&r, 0, 4, SMALL, &plan);
	r.source.blocks = 10;
	r.pair.over = true;
	run_start(&r);
	if (!job_join(&r.source, LONG_MS * slow) || !job_join(&r.sink, LONG_MS * slow)) {
		fprintf(stderr, "abort was forgotten\n");
		abort();
	}
	pair_close(&r.pair);
	assert_int_equal(r.source.rc, -1);
	assert_int_equal(r.sink.rc, -1);
	assert_int_equal(r.sink.done, 0);
}

static void test_abort_at_any_time_ends_the_lane(void **arg)
{
	unsigned seed = 3;

	(void)arg;
	for (unsigned i = 0; i < 60 * often; i++) {
		struct run r;
		bool left;

		run_open(&r, 0, 4, MIDDLE, NULL);
		r.source.blocks = 1000000;
		run_start(&r);
		nanosleep(&(struct timespec){.tv_nsec = rand_r(&seed) % 4000000}, NULL);
		if (i % 2)
			lane_break(r.pair.sink.lane, 0, "told so");
		atomic_store(&r.pair.over, true);
		lane_abort(i % 3 ? r.pair.source.lane : r.pair.sink.lane);
		/* They are busy, and with other programs the processors may be, too. */
		left = job_join(&r.source, SOON_MS * 5 * slow) &&
		       job_join(&r.sink, SOON_MS * 5 * slow);
		if (!left) {
			fprintf(stderr, "abort was not heard\n");
			abort();
		}
		pair_close(&r.pair);
		assert_int_equal(r.source.rc, -1);
		assert_int_equal(r.sink.rc, -1);
		assert_string_equal(r.sink.wrong, "");
	}
}

static void test_aborted_lane_stays_aborted(void **arg)
{
	struct block *b;
	struct pair p;

	(void)arg;
	assert_int_equal(pair_open(&p, backend, state, 0, 4, SMALL, NULL), 0);
	pair_end(&p);
	assert_int_equal(lane_get(p.source.lane, &b), -1);
	assert_int_equal(lane_flush(p.source.lane), -1);
	assert_int_equal(lane_recv(p.sink.lane, &b), -1);
	assert_int_equal(lane_recv(p.sink.lane, &b), -1);
	pair_close(&p);
}

static int set_up(void **arg)
{
	(void)arg;
	if (backend->setup(&state)) {
		print_error("%s: %s\n", backend->name, failed()->text);
		return -1;
	}
	return 0;
}

static int tear_down(void **arg)
{
	(void)arg;
	backend->teardown(state);
	return 0;
}

int conformance_run(const struct backend *b)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_arrive_in_order_and_whole),
		cmocka_unit_test(test_every_block_size_works),
		cmocka_unit_test(test_stopped_sink_stops_its_source),
		cmocka_unit_test(test_source_obeys_the_depth_of_the_wire),
		cmocka_unit_test(test_blocks_are_resent_within_the_depth_of_the_wire),
		cmocka_unit_test(test_flush_waits_for_exactly_the_last_put),
		cmocka_unit_test(test_records_are_copied_when_the_peer_can_write),
		cmocka_unit_test(test_two_lanes_run_at_once),
		cmocka_unit_test(test_break_before_a_send),
		cmocka_unit_test(test_break_after_a_send),
		cmocka_unit_test(test_break_before_a_credit),
		cmocka_unit_test(test_break_after_a_credit),
		cmocka_unit_test(test_break_before_a_receive),
		cmocka_unit_test(test_break_after_a_receive),
		cmocka_unit_test(test_break_at_a_post),
		cmocka_unit_test(test_break_at_a_grant),
		cmocka_unit_test(test_repeatedly_broken_lane_delivers_everything),
		cmocka_unit_test(test_block_put_after_the_break_is_stored),
		cmocka_unit_test(test_serviced_lane_is_mended),
		cmocka_unit_test(test_break_applies_to_its_epoch),
		cmocka_unit_test(test_useless_connections_end_the_session),
		cmocka_unit_test(test_block_damaged_once_is_resent),
		cmocka_unit_test(test_block_damaged_twice_ends_the_session),
		cmocka_unit_test(test_forged_heads_end_the_session),
		cmocka_unit_test(test_forged_credits_end_the_session),
		cmocka_unit_test(test_false_stored_count_ends_the_session),
		cmocka_unit_test(test_abort_ends_mending),
		cmocka_unit_test(test_abort_ends_recv),
		cmocka_unit_test(test_abort_ends_get),
		cmocka_unit_test(test_abort_ends_send),
		cmocka_unit_test(test_abort_ends_flush),
		cmocka_unit_test(test_abort_before_attach_ends_the_lane),
		cmocka_unit_test(test_abort_at_any_time_ends_the_lane),
		cmocka_unit_test(test_aborted_lane_stays_aborted),
	};

	backend = b;
	if (getenv("SLUICE_LAB"))
		slow = 3;
	if (getenv("SLUICE_COUNT") && atoi(getenv("SLUICE_COUNT")) > 1)
		often = (unsigned)atoi(getenv("SLUICE_COUNT"));
	return cmocka_run_group_tests_name(b->name, tests, set_up, tear_down);
}
