/* SPDX-License-Identifier: Apache-2.0 */
/* The scales of the plot, and that it is well-formed for any input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cmd/bench/bench.h"
#include "recorded.h"
#include <cmocka.h>
#include "cmd/bench/plot.h"

static void axes_end_at_round_numbers(void **state)
{
	static const struct {
		double most, top, step;
	} table[] = {
		{1, 1, 0.2},    {0.95, 1, 0.2},     {1.01, 1.5, 0.5}, {9.9, 10, 2},
		{12.5, 15, 5},  {4.2e9, 5e9, 1e9},  {23, 25, 5},      {100, 100, 20},
		{101, 150, 50}, {3e-3, 3e-3, 1e-3},
	};
	double step;

	(void)state;
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
		double top = plot_axis(table[i].most, &step);

		if (top < table[i].top * 0.999 || top > table[i].top * 1.001 ||
		    step < table[i].step * 0.999 || step > table[i].step * 1.001)
			fail_msg("%g: %g by %g", table[i].most, top, step);
	}
}

static void axes_have_few_ticks_and_room_for_all(void **state)
{
	double step, top;

	(void)state;
	for (double most = 1e-3; most < 1e13; most *= 1.07) {
		top = plot_axis(most, &step);
		assert_true(top >= most * 0.999999);
		assert_true(top / step > 2.4 && top / step < 10.1);
	}
	/* No points were measured. */
	assert_true(plot_axis(0, &step) > 0 && step > 0);
	assert_true(plot_axis(-1, &step) > 0 && step > 0);
}

static void doublings_are_equally_wide(void **state)
{
	(void)state;
	assert_true(plot_place(4096, 4096, 4 << 20) == 0);
	assert_true(plot_place(4 << 20, 4096, 4 << 20) == 1);
	assert_true(plot_place(128 << 10, 4096, 4 << 20) == 0.5);
	assert_true(plot_place(4096, 4096, 4096) == 0.5);
}

static unsigned count(const char *in, const char *what)
{
	unsigned n = 0;

	for (; (in = strstr(in, what)) != NULL; in += strlen(what))
		n++;
	return n;
}

static char *draw(const struct plot *p)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	plot_svg(p, to);
	fclose(to);
	return text;
}

static void each_setting_has_a_curve(void **state)
{
	static struct plot p = {
		.title = "a <b> & \"c\"",
		.subtitle = "\x01\n",
		.count = 3,
		.limit = 12.5e9,
		.limit_name = "limit",
		.best_x = 1 << 20,
		.best_y = 9e9,
		.best_text = "--lanes 4 --depth 16 --block-size 1M",
		.lines = {{"one", 0, 2, {4096, 1 << 20}, {1e8, 4e9}},
			  {"two", 3, 2, {4096, 1 << 20}, {2e8, 9e9}},
			  {"three", PLOT_BESIDE, 1, {1 << 20}, {3e9}}},
	};
	char *svg = draw(&p);

	(void)state;
	assert_int_equal(count(svg, "<polyline"), 3);
	assert_int_equal(count(svg, "class=\"limit\""), 1);
	assert_int_equal(count(svg, "class=\"best\""), 1);
	assert_int_equal(count(svg, "KiB<"), 4);
	assert_non_null(strstr(svg, "a &lt;b&gt; &amp; &quot;c&quot;"));
	assert_null(strchr(svg, '\x01'));
	assert_non_null(strstr(svg, ">--block-size 1M<"));
	/* The highest curve comes first. */
	assert_true(strstr(svg, ">two<") < strstr(svg, ">one<"));
	assert_int_equal(count(svg, "nan"), 0);
	assert_int_equal(count(svg, "inf"), 0);
	free(svg);
}

static void unknown_limit_draws_no_line(void **state)
{
	static struct plot p = {.count = 1, .lines = {{"only", 0, 1, {65536}, {5e6}}}};
	char *svg = draw(&p);

	(void)state;
	assert_int_equal(count(svg, "class=\"limit\""), 0);
	assert_int_equal(count(svg, "class=\"best\""), 0);
	assert_non_null(strstr(svg, "MB/s (1 MB = 10"));
	assert_int_equal(count(svg, "nan"), 0);
	free(svg);
}

static void slow_paths_have_axis_labels_too(void **state)
{
	static const struct {
		double rate;
		const char *text;
	} table[] = {
		{123.44e9, "123.4"}, {23.456e9, "23.46"}, {3.4564e9, "3.456"}, {12e6, "0.012"},
		{6.44e6, "0.0064"},  {41e3, "0.00004"},   {0, "0.00000"},
	};
	char text[RATE_TEXT];

	(void)state;
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
		assert_string_equal(rate_text(table[i].rate, text, sizeof text), table[i].text);
}

/* Adapters and their states as in tests/sysfs. */
static void rail_limits_add_up(void **state)
{
	static const struct {
		const char *wire, *name;
		double rate;
	} table[] = {
		{"rdma mlx5_0 10.0.0.1:7000", "mlx5_0", 25e9},
		{"rdma mlx5_0 10.0.0.1:7000 write-imm", "mlx5_0", 25e9},
		{"rdma mlx5_0, mlx5_0", "mlx5_0, mlx5_0", 50e9},
		{"rdma mlx5_0, mlx5_1", "", 0} /* this port is down */,
		{"rdma mlx5 10.0.0.1:7000", "", 0},
	};
	struct nic_limit limit;
	char sys[4200];

	(void)state;
	snprintf(sys, sizeof sys, "%s/sys", recorded("infiniband"));
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
		nic_limit_find(sys, table[i].wire, &limit);
		if (limit.rate != table[i].rate)
			fail_msg("%s: %g", table[i].wire, limit.rate);
		if (limit.rate > 0)
			assert_string_equal(limit.name, table[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(axes_end_at_round_numbers),
		cmocka_unit_test(axes_have_few_ticks_and_room_for_all),
		cmocka_unit_test(doublings_are_equally_wide),
		cmocka_unit_test(each_setting_has_a_curve),
		cmocka_unit_test(rail_limits_add_up),
		cmocka_unit_test(slow_paths_have_axis_labels_too),
		cmocka_unit_test(unknown_limit_draws_no_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
