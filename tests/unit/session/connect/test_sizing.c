/* SPDX-License-Identifier: Apache-2.0 */

/* The sizes of lanes that follow from links, cores and memory, as a table. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "lane/connect.h"
#include "lane/memlock.h"
#include "lane/pool.h"
#include "session/connect/sizing.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)
#define NO_LIMIT UINT64_MAX

enum { K256 = 256 << 10, M1 = 1 << 20 };

struct row {
	struct sizing_for has;
	struct sizing asked, right;
};

static const struct row rows[] = {
	/* Slow or unknown links get what fits into 8 MiB. */
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {0}, {2, 12, K256}},
	{{0, 1, true, 64, NO_LIMIT, 0, 0}, {0}, {2, 12, K256}},
	{{10000, 1, true, 64, 8 * MIB, 64 * GIB, 0}, {0}, {2, 12, K256}},
	{{10000, 1, false, 1, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 12, K256}},
	/* One link, and no other limit. */
	{{25000, 1, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 14, K256}},
	{{25000, 1, false, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 14, K256}},
	{{56000, 1, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 32, K256}},
	{{100000, 1, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 14, M1}},
	{{100000, 1, false, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {4, 28, K256}},
	{{200000, 1, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {4, 14, M1}},
	{{200000, 1, false, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {8, 28, K256}},
	{{400000, 1, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {8, 14, M1}},
	{{400000, 1, false, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {8, 14, M1}},
	{{3200000, 1, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {8, 32, M1}},
	/* At most half the cores in lanes, but at least two. */
	{{400000, 1, true, 8, NO_LIMIT, 64 * GIB, 0}, {0}, {4, 28, M1}},
	{{400000, 1, true, 2, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 57, M1}},
	/* Limited locked memory: all of it is used, with fewer lanes rather than shallower ones. */
	{{100000, 1, true, 64, 8 * MIB, 64 * GIB, 0}, {0}, {2, 15, K256}},
	{{400000, 1, true, 64, 8 * MIB, 64 * GIB, 0}, {0}, {3, 10, K256}},
	{{100000, 1, true, 64, 32 * MIB, 64 * GIB, 0}, {0}, {2, 14, M1}},
	{{100000, 1, false, 64, 8 * MIB, 64 * GIB, 0}, {0}, {4, 28, K256}},
	/*
	 * Less than one lane needs: HELLO proposes the minimum, and the agreement decides whether
	 * it fits.
	 */
	{{10000, 1, true, 2, 1 * MIB, 8 * GIB, 0}, {0}, {2, 4, K256}},
	{{10000, 1, true, 2, 1, 8 * GIB, 0}, {0}, {2, 4, K256}},
	/* A host with little memory. */
	{{400000, 1, true, 64, NO_LIMIT, 1 * GIB, 0}, {0}, {8, 16, K256}},
	{{400000, 1, true, 64, NO_LIMIT, 64 * MIB, 0}, {0}, {8, 4, K256}},
	/* Rails: at least one lane each, and equally many on each. */
	{{20000, 2, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {2, 12, K256}},
	{{40000, 4, true, 2, NO_LIMIT, 64 * GIB, 0}, {0}, {4, 11, K256}},
	{{200000, 2, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {4, 14, M1}},
	{{300000, 3, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {6, 14, M1}},
	{{500000, 5, true, 64, NO_LIMIT, 64 * GIB, 0}, {0}, {10, 14, M1}},
	{{40000, 4, true, 64, 8 * MIB, 64 * GIB, 0}, {0}, {4, 7, K256}},
	/* A round trip that does not matter, and longer ones, over RDMA and TCP. */
	{{100000, 1, true, 64, NO_LIMIT, 64 * GIB, 400}, {0}, {2, 14, M1}},
	{{100000, 1, true, 64, NO_LIMIT, 64 * GIB, 10000}, {0}, {2, 71, M1}},
	{{100000, 1, false, 64, NO_LIMIT, 64 * GIB, 10000}, {0}, {4, 35, M1}},
	{{400000, 1, true, 64, NO_LIMIT, 64 * GIB, 10000}, {0}, {8, 71, M1}},
	{{25000, 1, true, 64, NO_LIMIT, 64 * GIB, 10000}, {0}, {2, 71, K256}},
	{{25000, 1, true, 64, NO_LIMIT, 64 * GIB, 100000}, {0}, {2, 151, M1}},
	{{1000, 1, false, 8, NO_LIMIT, 16 * GIB, 100000}, {0}, {2, 24, K256}},
	{{0, 1, false, 8, NO_LIMIT, 16 * GIB, 30000}, {0}, {2, 76, K256}},
	/* There the window ends at 1 GiB, a 32nd of the memory, or the locked memory. */
	{{400000, 1, true, 64, NO_LIMIT, 64 * GIB, 100000}, {0}, {8, 128, M1}},
	{{100000, 1, true, 64, NO_LIMIT, 64 * GIB, UINT32_MAX}, {0}, {2, 512, M1}},
	{{400000, 1, true, 64, NO_LIMIT, 8 * GIB, 100000}, {0}, {8, 32, M1}},
	{{100000, 1, true, 64, 8 * MIB, 64 * GIB, 10000}, {0}, {2, 15, K256}},
	/* Values that the user set stay, and the others are chosen to fill the window. */
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {7, 9, 64 << 10}, {7, 9, 64 << 10}},
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {.lanes = 1}, {1, 24, K256}},
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {.lanes = 64}, {64, 4, K256}},
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {.depth = 3}, {2, 3, K256}},
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {.block_size = 64 << 10}, {2, 48, 64 << 10}},
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {.block_size = 4096}, {2, 128, 4096}},
	{{0, 1, false, 2, NO_LIMIT, 8 * GIB, 0}, {.block_size = 4 << 20}, {2, 4, 4 << 20}},
};

static void test_chosen_sizes_match_the_table(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct sizing s = rows[i].asked, r = rows[i].right;

		sizing_choose(&rows[i].has, &s);
		if (s.lanes != r.lanes || s.depth != r.depth || s.block_size != r.block_size)
			fail_msg("row %u: %u x %u x %u, not %u x %u x %u", i, s.lanes, s.depth,
				 s.block_size, r.lanes, r.depth, r.block_size);
	}
}

/* Every chosen size can be encoded in HELLO, and needs no reduction where memory suffices. */
static void test_chosen_sizes_fit(void **state)
{
	(void)state;
	for (uint64_t rate = 0; rate < 4000000; rate = rate * 2 + 7000)
		for (unsigned links = 1; links <= 16; links++)
			for (uint64_t locked = 4 * MIB; locked <= GIB; locked *= 2) {
				struct sizing_for f = {rate * links, links,    true, 64,
						       locked,       64 * GIB, 0};
				struct sizing s = {0};
				unsigned lanes;
				uint32_t depth, size;

				sizing_choose(&f, &s);
				assert_in_range(s.lanes, links, LANE_COUNT_MAX);
				assert_in_range(s.depth, 1, LANE_DEPTH_MAX);
				lanes = s.lanes;
				depth = s.depth;
				size = s.block_size;
				if (s.depth == 4)
					continue; /* the smallest proposed size */
				assert_true(lanes_fit(locked, &lanes, &depth, &size));
				assert_int_equal(lanes, s.lanes);
				assert_int_equal(depth, s.depth);
				assert_int_equal(size, s.block_size);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chosen_sizes_match_the_table),
		cmocka_unit_test(test_chosen_sizes_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
