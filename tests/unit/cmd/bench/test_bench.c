/* SPDX-License-Identifier: Apache-2.0 */
/* What rdbench recommends, for made-up results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "cmd/bench/bench.h"

static const char best[] = "best: --lanes 4 --depth 16 --block-size 1M\n";

/* The last line for this many bytes per second of the best point, which has 4 lanes, and of the
 * defaults. */
static const char *advice_for(double most, double by_itself, const struct options *o)
{
	static char line[256];
	static struct bench b;
	struct point *p = &b.series[0].points[0];
	FILE *to = tmpfile();
	int old = dup(STDOUT_FILENO);

	b = (struct bench){.o = o, .series_count = 1};
	*p = (struct point){.bytes = (uint64_t)most, .ns = 1000000000};
	p->set = (struct setting){.lanes = 4, .depth = 16, .block_size = 1 << 20};
	b.best = p;
	b.by_itself = (struct point){.set.transport = o->network.want,
				     .bytes = (uint64_t)by_itself,
				     .ns = 1000000000};
	bench_advise(&b);
	assert_non_null(to);
	fflush(stdout);
	assert_int_equal(dup2(fileno(to), STDOUT_FILENO), STDOUT_FILENO);
	print_summary(&b);
	assert_int_equal(dup2(old, STDOUT_FILENO), STDOUT_FILENO);
	close(old);
	rewind(to);
	while (fgets(line, sizeof line, to))
		;
	fclose(to);
	return line;
}

static void defaults_that_are_as_fast_are_recommended(void **state)
{
	struct options o = {0};

	(void)state;
	assert_string_equal(advice_for(1e9, 1.7e9, &o), "best: no options\n");
	assert_string_equal(advice_for(1e9, 1e9, &o), "best: no options\n");
	assert_string_equal(advice_for(1e9, 0.97e9, &o), "best: no options\n");
	o.network.want = TRANSPORT_TCP;
	assert_string_equal(advice_for(1e9, 1e9, &o), "best: --transport tcp\n");
}

static void faster_setting_is_recommended(void **state)
{
	struct options o = {0};

	(void)state;
	assert_string_equal(advice_for(1e9, 0.96e9, &o), best);
	/* They were not measured. */
	assert_string_equal(advice_for(1e9, 0, &o), best);
}

static void chosen_setting_is_recommended(void **state)
{
	struct options lanes = {.speed.lanes = 4}, depth = {.speed.depth = 16};
	struct options block = {.speed.block_size = 1 << 20};

	(void)state;
	assert_string_equal(advice_for(1e9, 2e9, &lanes), best);
	assert_string_equal(advice_for(1e9, 2e9, &depth), best);
	assert_string_equal(advice_for(1e9, 2e9, &block), best);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_that_are_as_fast_are_recommended),
		cmocka_unit_test(faster_setting_is_recommended),
		cmocka_unit_test(chosen_setting_is_recommended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
