/* SPDX-License-Identifier: Apache-2.0 */

/* Which ways to the other end become rails, and which rail a lane uses. */

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "host/own_address.h"
#include "session/connect/rail.h"
/* Included after our headers, because it defines a macro fail(). */
#include <cmocka.h>

enum { WAYS = 5 };
#define W(n, f, r)                                                                                 \
	{                                                                                          \
		.near = n, .far = f, .rate = r                                                     \
	}
#define DEAD(n, f, r)                                                                              \
	{                                                                                          \
		.near = n, .far = f, .rate = r, .dead = true                                       \
	}

struct row {
	const char *what;
	unsigned count;
	struct rail ways[WAYS];
	unsigned worked, most;
	unsigned right_count, right[WAYS];
};

static const struct row rows[] = {
	{"the only one", 1, {W(0, 0, 100)}, 0, 16, 1, {0}},
	{"two of two adapters", 2, {W(0, 0, 100), W(1, 1, 100)}, 0, 16, 2, {0, 1}},
	{"one is asked for", 2, {W(0, 0, 100), W(1, 1, 100)}, 0, 1, 1, {0}},
	{"four, three asked for",
	 4,
	 {W(0, 0, 9), W(1, 1, 9), W(2, 2, 9), W(3, 3, 9)},
	 0,
	 3,
	 3,
	 {0, 1, 2}},
	{"two addresses of one adapter there", 2, {W(0, 5, 100), W(1, 5, 100)}, 0, 16, 1, {0}},
	{"one adapter here", 2, {W(0, 0, 100), W(0, 1, 100)}, 0, 16, 1, {0}},
	{"the slower one is left", 2, {W(0, 0, 100), W(1, 1, 25)}, 0, 16, 1, {0}},
	{"the faster one was dead",
	 3,
	 {DEAD(2, 2, 200), W(0, 0, 100), W(1, 1, 100)},
	 1,
	 16,
	 2,
	 {1, 2}},
	{"what failed before is none",
	 3,
	 {DEAD(0, 0, 100), W(1, 1, 100), W(2, 2, 100)},
	 1,
	 16,
	 2,
	 {1, 2}},
	{"rates that nobody knows", 3, {W(0, 0, 0), W(1, 1, 0), W(2, 2, 0)}, 0, 16, 3, {0, 1, 2}},
	{"one that nobody knows", 3, {W(0, 0, 100), W(1, 1, 0), W(2, 2, 10)}, 0, 16, 2, {0, 1}},
	{"the one that worked has none", 2, {DEAD(0, 0, 100), W(1, 1, 0)}, 1, 16, 1, {1}},
	{"what leads there is not known",
	 3,
	 {W(0, 0, 100), W(-1, 1, 100), W(1, 2, 100)},
	 0,
	 16,
	 2,
	 {0, 2}},
	{"nor of the one that worked", 2, {W(-1, 0, 100), W(1, 1, 100)}, 0, 16, 1, {0}},
	/* Two ports in one network at each host: the routes put both places behind port 0. */
	{"beside each other",
	 4,
	 {W(0, 0, 9), W(0, 1, 9), W(1, 0, 9), W(1, 1, 9)},
	 0,
	 16,
	 2,
	 {0, 3}},
	{"one with two addresses each",
	 4,
	 {W(0, 0, 9), W(1, 1, 9), W(0, 0, 9), W(1, 1, 9)},
	 0,
	 16,
	 2,
	 {0, 1}},
};

static void test_distinct_port_pairs_become_rails(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct row *r = &rows[i];
		unsigned got[OFFER_MAX];
		unsigned n = rails_choose(r->ways, r->count, r->worked, r->most, got);

		if (n != r->right_count || memcmp(got, r->right, n * sizeof *got) != 0)
			fail_msg("%s: %u rails, the last is %u", r->what, n, got[n - 1]);
	}
}

static void test_fastest_rails_come_first(void **state)
{
	struct rail ways[] = {W(0, 0, 0), W(1, 0, 25), W(2, 0, 100), W(3, 0, 25), W(4, 0, 100)};
	static const int right[] = {2, 4, 1, 3, 0};

	(void)state;
	rails_sort(ways, 5);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(ways[i].near, right[i]);
	rails_sort(ways, 0);
}

static void test_lanes_are_spread_over_the_rails(void **state)
{
	struct rail rails[] = {W(0, 0, 0), W(1, 1, 0), W(2, 2, 0)};

	(void)state;
	for (unsigned lane = 0; lane < 7; lane++)
		assert_int_equal(rail_of_lane(rails, 3, lane), lane % 3);
	rails[1].dead = true;
	assert_int_equal(rail_of_lane(rails, 3, 1), 2);
	assert_int_equal(rail_of_lane(rails, 3, 4), 2);
	assert_int_equal(rail_of_lane(rails, 3, 3), 0);
	rails[2].dead = true;
	assert_int_equal(rail_of_lane(rails, 3, 1), 0);
	assert_int_equal(rail_of_lane(rails, 3, 2), 0);
	rails[0].dead = true;
	assert_int_equal(rail_of_lane(rails, 3, 0), -1);
	assert_int_equal(rail_of_lane(rails, 0, 5), -1);
}

static void test_dead_rails_are_tried_last(void **state)
{
	struct rail rails[] = {W(0, 0, 0), W(1, 1, 0)};

	(void)state;
	assert_int_equal(rail_to_try(rails, 2, 1, 0), 1);
	rails[1].dead = true;
	assert_int_equal(rail_to_try(rails, 2, 1, 0), 0);
	/* With all rails dead, each of them is tried again. */
	rails[0].dead = true;
	assert_int_equal(rail_to_try(rails, 2, 1, 0), 1);
	assert_int_equal(rail_to_try(rails, 2, 1, 1), 0);
	assert_int_equal(rail_to_try(rails, 2, 1, 2), -1);
	assert_int_equal(rail_to_try(rails, 0, 1, 0), -1);
}

static union address in4(const char *text)
{
	union address a = {.in4 = {.sin_family = AF_INET, .sin_port = htons(7000)}};

	assert_int_equal(inet_pton(AF_INET, text, &a.in4.sin_addr), 1);
	return a;
}

/* No adapter is behind loopback on any host. */
static void test_ways_without_adapters_are_sorted_by_rate(void **state)
{
	struct msg_offer o = {.count = 3};
	struct dial_rules rules = {.same_host = true};
	union address a = in4("127.0.0.1"), b = in4("127.0.0.2"), from;
	struct rail ways[WAYS_MAX];

	(void)state;
	o.places[0] = offer_place_make(&a, TRANSPORT_TCP, 7000);
	o.places[1] = offer_place_make(&a, TRANSPORT_RDMA, 7001);
	o.places[2] = offer_place_make(&b, TRANSPORT_RDMA, 7002);
	o.places[1].rate = 100;
	o.places[2].rate = 200;
	o.places[2].adapter = 7;
	assert_int_equal(rails_find(&o, &rules, ways, WAYS_MAX), 2);
	assert_int_equal(ntohs(ways[0].to.in4.sin_port), 7002);
	assert_int_equal(ways[0].far, 7);
	assert_int_equal(ways[0].rate, 200);
	assert_int_equal(ways[0].near, -1);
	assert_int_equal(ways[0].from.sa.sa_family, AF_UNSPEC);
	assert_int_equal(rails_find(&o, &rules, ways, 1), 1);
	assert_int_equal(own_address_toward(&a, &from), 0);
	assert_true(address_same(&from, &a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_distinct_port_pairs_become_rails),
		cmocka_unit_test(test_fastest_rails_come_first),
		cmocka_unit_test(test_lanes_are_spread_over_the_rails),
		cmocka_unit_test(test_dead_rails_are_tried_last),
		cmocka_unit_test(test_ways_without_adapters_are_sorted_by_rate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
