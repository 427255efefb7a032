/* SPDX-License-Identifier: Apache-2.0 */

/* When a lane compresses: a lane in virtual time, with a wire and a processor of given rates. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "lane/compress_choice.h"

enum { LEN = 256 << 10, WINDOW = 8, BLOCKS = 20000 };

/* In bytes per second; ratio: of what is compressed. */
struct world {
	double wire, source, compressor, ratio;
};

struct outcome {
	double seconds, compressing; /* all the time, and the part spent compressing */
	unsigned packed; /* blocks that went compressed */
};

static uint64_t ns_for(double bytes, double rate)
{
	return (uint64_t)(bytes * 1e9 / rate);
}

static void run(struct compress_choice *c, const struct world *w, unsigned blocks, uint64_t *now,
		struct outcome *o)
{
	uint64_t sent[WINDOW] = {0}, wire_free = *now, begun = *now;

	*o = (struct outcome){0};
	for (unsigned i = 0; i < blocks; i++) {
		uint64_t waited = 0;
		double wire_len = LEN;

		/* the credit of an earlier block, then the source's data */
		if (sent[i % WINDOW] > *now)
			waited = sent[i % WINDOW] - *now;
		*now += waited + ns_for(LEN, w->source);
		if (choice_tries(c, *now, LEN, waited, WINDOW)) {
			uint64_t spent = ns_for(LEN, w->compressor);
			bool shrinks = w->ratio < 1;

			*now += spent;
			o->compressing += (double)spent / 1e9;
			choice_learns(c, *now, LEN, shrinks ? (uint32_t)(LEN * w->ratio) : 0, spent,
				      spent);
			wire_len = shrinks ? LEN * w->ratio : LEN;
			o->packed += shrinks;
		}
		wire_free = (wire_free > *now ? wire_free : *now) + ns_for(wire_len, w->wire);
		sent[i % WINDOW] = wire_free;
	}
	o->seconds = (double)(*now - begun) / 1e9;
}

static struct outcome run_world(const struct world *w, enum compress_mode mode, unsigned blocks)
{
	struct compress_choice c;
	struct outcome o;
	uint64_t now = 1;

	choice_begin(&c, mode);
	run(&c, w, blocks, &now, &o);
	return o;
}

static void slow_wire_is_compressed_for(void **state)
{
	const struct world w = {.wire = 1e8, .source = 5e9, .compressor = 5e8, .ratio = .3};
	struct outcome o = run_world(&w, COMPRESS_AUTO, BLOCKS);

	(void)state;
	assert_true(o.packed > BLOCKS * 95 / 100);
	assert_true(o.seconds < 1.05 * run_world(&w, COMPRESS_ALWAYS, BLOCKS).seconds);
}

static void fast_wire_is_not(void **state)
{
	const struct world w = {.wire = 5e9, .source = 5e9, .compressor = 5e8, .ratio = .3};
	struct outcome o = run_world(&w, COMPRESS_AUTO, 10 * BLOCKS);

	(void)state;
	assert_true(o.seconds < 1.06 * run_world(&w, COMPRESS_OFF, 10 * BLOCKS).seconds);
}

static void data_that_does_not_shrink_costs_less_than_one_percent(void **state)
{
	static const double wires[] = {1e8, 1e9, 5e9, 2e10};

	(void)state;
	for (unsigned i = 0; i < sizeof wires / sizeof *wires; i++) {
		struct world w = {.wire = wires[i], .source = 5e9, .compressor = 4e9, .ratio = 1};
		struct outcome o = run_world(&w, COMPRESS_AUTO, BLOCKS);

		assert_true(o.compressing < .01 * o.seconds);
		w.compressor = 5e7; /* a high level */
		o = run_world(&w, COMPRESS_AUTO, 10 * BLOCKS);
		assert_true(o.compressing < .012 * o.seconds);
	}
}

/* Near where both take the same time, neither choice may be much slower. */
static void auto_is_never_much_slower_than_the_better_choice(void **state)
{
	(void)state;
	for (double wire = 5e7; wire < 1e10; wire *= 1.7) {
		for (double ratio = .1; ratio < .9; ratio += .2) {
			struct world w = {wire, 4e9, 4.7e8, ratio};
			double on = run_world(&w, COMPRESS_ALWAYS, 5 * BLOCKS).seconds;
			double off = run_world(&w, COMPRESS_OFF, 5 * BLOCKS).seconds;
			double best = on < off ? on : off;

			assert_true(run_world(&w, COMPRESS_AUTO, 5 * BLOCKS).seconds <
				    1.1 * best + .5);
		}
	}
}

static void choice_follows_a_change(void **state)
{
	struct world w = {.wire = 1e8, .source = 5e9, .compressor = 5e8, .ratio = 1};
	struct compress_choice c;
	struct outcome o;
	uint64_t now = 1;

	(void)state;
	choice_begin(&c, COMPRESS_AUTO);
	run(&c, &w, BLOCKS, &now, &o);
	assert_int_equal(o.packed, 0);
	w.ratio = .3;
	run(&c, &w, BLOCKS, &now, &o);
	assert_true(o.packed > BLOCKS * 95 / 100);
	w.ratio = 1;
	run(&c, &w, BLOCKS, &now, &o);
	assert_true(o.compressing < .01 * o.seconds);
}

/* On a busy machine a millisecond of work may take a tenth of a second. */
static void an_interrupted_try_is_repeated_soon(void **state)
{
	struct compress_choice c;
	uint64_t now = 1;

	(void)state;
	choice_begin(&c, COMPRESS_AUTO);
	assert_true(choice_tries(&c, now, LEN, 0, WINDOW));
	now += 100000000;
	choice_learns(&c, now, LEN, 0, 100000000, 1000000);
	now += 200000000;
	assert_true(choice_tries(&c, now, LEN, 150000000, WINDOW));
	choice_learns(&c, now, LEN, LEN / 3, 1000000, 1000000);
	assert_true(choice_tries(&c, now + 1, LEN, 0, WINDOW));
}

static void modes_without_choice_do_not_choose(void **state)
{
	const struct world w = {.wire = 5e9, .source = 5e9, .compressor = 5e8, .ratio = .3};

	(void)state;
	assert_int_equal(run_world(&w, COMPRESS_OFF, 100).packed, 0);
	assert_int_equal(run_world(&w, COMPRESS_ALWAYS, 100).packed, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slow_wire_is_compressed_for),
		cmocka_unit_test(fast_wire_is_not),
		cmocka_unit_test(data_that_does_not_shrink_costs_less_than_one_percent),
		cmocka_unit_test(auto_is_never_much_slower_than_the_better_choice),
		cmocka_unit_test(choice_follows_a_change),
		cmocka_unit_test(an_interrupted_try_is_repeated_soon),
		cmocka_unit_test(modes_without_choice_do_not_choose),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
