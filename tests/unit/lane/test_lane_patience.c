/* SPDX-License-Identifier: Apache-2.0 */

/* How long a source waits for a credit, depending on the answers of its sink; without a wire. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "lane/lane_impl.h"
#include "lane/patience.h"

enum { LONG_MS = 60000 };

enum answer { SILENT, IDLE, BUSY };

/* A send has not completed. */
static bool sends_wait;

static struct {
	enum answer answer;
	unsigned asked;
} sink;

/* Attach a wire in name only: answers about an unattached one are ignored. */
static struct wire wire;

static void ask(void *ctx, struct lane *l, uint32_t epoch)
{
	(void)ctx;
	sink.asked++;
	if (sink.answer != SILENT)
		lane_held(l, epoch, sink.answer == BUSY);
}

static int no_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	(void)ctx;
	(void)l;
	(void)epoch;
	(void)why;
	return -1;
}

static struct lane *lane_of(int timeout_ms, enum answer answer)
{
	struct lane_setup setup = {
		.side = LANE_SOURCE,
		.depth = 4,
		.block_size = LANE_BLOCK_MIN,
		.timeout_ms = timeout_ms,
		.mend = no_mend,
		.ask = ask,
	};
	struct lane *l;

	sink.answer = answer;
	sink.asked = 0;
	assert_int_equal(lane_open(&setup, &l), 0);
	l->wire = &wire;
	return l;
}

static void lane_free(struct lane *l)
{
	l->wire = NULL;
	lane_close(l);
}

/*
 * Check repeatedly, as a wire does, until the wire is given up or for this long; returns how long
 * that took, 0: it was not given up.
 */
static uint64_t wait_ms(struct lane *l, bool fresh, uint64_t most_ms)
{
	struct patience p = {0};
	uint64_t from = clock_ms();

	while (clock_ms() - from < most_ms) {
		uint64_t next = patience_next(&p, l, fresh), now = clock_ms();
		struct timespec ts = {.tv_nsec = 1000000 * (long)(next > now ? next - now : 0)};

		ts.tv_sec = ts.tv_nsec / 1000000000;
		ts.tv_nsec %= 1000000000;
		nanosleep(&ts, NULL);
		if (patience_look(&p, l, &(struct wire_signs){7, 3, sends_wait, fresh}))
			return clock_ms() - from;
	}
	return 0;
}

static void silent_sink_is_given_the_timeout(void **state)
{
	struct lane *l = lane_of(800, SILENT);
	uint64_t took = wait_ms(l, false, LONG_MS);

	(void)state;
	assert_true(took >= 800);
	assert_true(sink.asked >= CHECKS - 1);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	lane_free(l);
}

static void sink_that_waits_for_blocks_is_given_the_timeout(void **state)
{
	struct lane *l = lane_of(800, IDLE);

	(void)state;
	assert_true(wait_ms(l, false, LONG_MS) >= 800);
	lane_free(l);
}

/* A slow consumer, or a stopped reader of a pipe: without a time limit. */
static void busy_sink_is_waited_for(void **state)
{
	struct lane *l = lane_of(200, BUSY);

	(void)state;
	assert_int_equal(wait_ms(l, false, 2000), 0);
	assert_int_equal(wait_ms(l, true, 1000), 0);
	assert_true(sink.asked > 3);
	lane_free(l);
}

/* The adapter of a busy sink acknowledges, too. */
static void unacknowledged_sends_are_given_the_timeout_also_by_a_busy_sink(void **state)
{
	struct lane *l = lane_of(800, BUSY);
	uint64_t took;

	(void)state;
	sends_wait = true;
	took = wait_ms(l, false, LONG_MS);
	sends_wait = false;
	assert_in_range(took, 800, 1200);
	assert_int_equal(failed()->code, OUT_PEER_LOST);
	assert_non_null(strstr(failed()->text, "nothing was acknowledged for 0.8 s"));
	lane_free(l);
}

static void fresh_wire_is_given_less_time(void **state)
{
	struct lane *l = lane_of(LONG_MS, IDLE);
	uint64_t took = wait_ms(l, true, LONG_MS / 2);

	(void)state;
	assert_true(took >= FIRST_CREDIT_MS);
	assert_non_null(strstr(failed()->text, "no block got through for 5 s"));
	lane_free(l);
}

/* Latency of the control channel means latency of the wire as well. */
static void fresh_wire_without_an_answer_is_given_the_timeout(void **state)
{
	struct lane *l = lane_of(FIRST_CREDIT_MS + 1500, SILENT);

	(void)state;
	assert_true(wait_ms(l, true, LONG_MS) >= FIRST_CREDIT_MS + 1500);
	assert_non_null(strstr(failed()->text, "no block got through for 6.5 s"));
	lane_free(l);
}

static void answer_for_another_epoch_is_ignored(void **state)
{
	struct lane *l = lane_of(1000, SILENT);

	(void)state;
	lane_held(l, 1, true);
	assert_int_equal(atomic_load(&l->answers_busy), 0);
	lane_held(l, 0, true);
	assert_int_equal(atomic_load(&l->answers_busy), 1);
	lane_free(l);
}

/* This process was stopped: no checks were made in the meantime. */
static void own_pause_is_not_counted_as_sink_silence(void **state)
{
	struct lane *l = lane_of(1000, IDLE);
	struct timespec pause = {.tv_sec = 3};
	struct patience p = {0};

	(void)state;
	assert_int_equal(patience_look(&p, l, &(struct wire_signs){.credits = 7}), 0);
	nanosleep(&pause, NULL);
	assert_int_equal(patience_look(&p, l, &(struct wire_signs){.credits = 7}), 0);
	assert_true(p.quiet_ms <= 1000 / CHECKS + 1);
	lane_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent_sink_is_given_the_timeout),
		cmocka_unit_test(sink_that_waits_for_blocks_is_given_the_timeout),
		cmocka_unit_test(busy_sink_is_waited_for),
		cmocka_unit_test(unacknowledged_sends_are_given_the_timeout_also_by_a_busy_sink),
		cmocka_unit_test(fresh_wire_is_given_less_time),
		cmocka_unit_test(fresh_wire_without_an_answer_is_given_the_timeout),
		cmocka_unit_test(answer_for_another_epoch_is_ignored),
		cmocka_unit_test(own_pause_is_not_counted_as_sink_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
