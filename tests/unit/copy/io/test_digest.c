/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>
#include "copy/io/digest.h"

enum { SIZE = 5 * CELL + 12345 };

static uint8_t *bytes;

static int make_bytes(void **state)
{
	uint32_t x = 1;

	(void)state;
	bytes = malloc(SIZE);
	if (!bytes)
		return -1;
	for (size_t i = 0; i < SIZE; i++) {
		x = x * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(x >> 24);
	}
	return 0;
}

static int free_bytes(void **state)
{
	(void)state;
	free(bytes);
	return 0;
}

/* The definition in docs/protocol.md: slow, and without any of digest.c. */
static void definition(size_t size, uint64_t out[2])
{
	out[0] = out[1] = 0;
	for (size_t pos = 0; pos < size; pos += 262144) {
		size_t len = size - pos < 262144 ? size - pos : 262144;
		XXH128_hash_t h = XXH3_128bits_withSeed(bytes + pos, len, pos);

		out[0] += h.low64;
		out[1] += h.high64 + (out[0] < h.low64);
	}
}

static void assert_digest(struct digest *d, size_t size)
{
	uint64_t is[2], should[2];

	digest_sum(d, is);
	definition(size, should);
	assert_int_equal(is[0], should[0]);
	assert_int_equal(is[1], should[1]);
}

static const size_t sizes[] = {0,        1,        4095,     CELL - 1,     CELL,
			       CELL + 1, 2 * CELL, 3 * CELL, 3 * CELL + 7, SIZE};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void digest_is_independent_of_splits(void **state)
{
	static const size_t steps[] = {1000, 4096, 65536, CELL - 1, CELL, CELL + 1, 4 * CELL, SIZE};

	(void)state;
	for (size_t s = 0; s < SIZES; s++) {
		for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
			struct digest *d = digest_new();

			assert_non_null(d);
			for (size_t pos = 0; pos < sizes[s]; pos += steps[k]) {
				size_t n = sizes[s] - pos;

				digest_add(d, pos, bytes + pos, n < steps[k] ? n : steps[k]);
			}
			assert_digest(d, sizes[s]);
			digest_free(d);
		}
	}
}

static void digest_is_independent_of_cell_order(void **state)
{
	static const size_t order[] = {3, 5, 0, 4, 2, 1};
	struct digest *d = digest_new();

	(void)state;
	assert_non_null(d);
	for (size_t i = 0; i < 6; i++) {
		size_t pos = order[i] * CELL;
		size_t n = SIZE - pos < CELL ? SIZE - pos : CELL;

		/* In two pieces, as small blocks deliver them. */
		digest_add(d, pos, bytes + pos, 1000);
		digest_add(d, pos + 1000, bytes + pos + 1000, n - 1000);
	}
	assert_digest(d, SIZE);
	digest_free(d);
}

/* As blocks of one size that are distributed over lanes cell by cell. */
static void add_blocks(size_t size, size_t block, unsigned lanes, uint64_t sum[2])
{
	size_t unit = block > CELL ? block : CELL;
	struct digest *d[4];

	for (unsigned i = 0; i < lanes; i++)
		assert_non_null(d[i] = digest_new());
	for (size_t pos = 0; pos < size; pos += block) {
		size_t n = size - pos < block ? size - pos : block;
		struct block b = {.data = bytes + pos, .len = (uint32_t)n, .pos = pos};
		unsigned lane = (unsigned)(pos / unit * 7 % lanes);

		block_seal(&b);
		digest_add_block(d[lane], &b, pos + n == size);
	}
	sum[0] = 0;
	sum[1] = 0;
	for (unsigned i = 0; i < lanes; i++) {
		uint64_t part[2];

		digest_sum(d[i], part);
		sum_add(sum, part);
		digest_free(d[i]);
	}
}

static void digest_is_independent_of_lanes_and_block_size(void **state)
{
	uint64_t is[2], should[2];

	(void)state;
	for (size_t s = 0; s < SIZES; s++) {
		definition(sizes[s], should);
		for (size_t block = 4096; block <= 4 << 20; block *= 2) {
			for (unsigned lanes = 1; lanes <= 4; lanes++) {
				add_blocks(sizes[s], block, lanes, is);
				assert_int_equal(is[0], should[0]);
				assert_int_equal(is[1], should[1]);
			}
		}
	}
}

static void whole_cell_is_hashed_once(void **state)
{
	struct block b = {.data = bytes, .len = CELL, .pos = 0, .hash = {5, 7}};
	struct digest *d = digest_new();
	uint64_t sum[2];

	(void)state;
	assert_non_null(d);
	digest_add_block(d, &b, false);
	digest_sum(d, sum);
	assert_int_equal(sum[0], 5);
	assert_int_equal(sum[1], 7);
	/* Nor are several. */
	b.len = 4 * CELL;
	digest_reset(d);
	digest_add_block(d, &b, false);
	digest_sum(d, sum);
	assert_int_equal(sum[0], 5);
	assert_int_equal(sum[1], 7);
	digest_free(d);
}

/* The digest of the data is the same whether a block contains no, some or only zero cells. */
static void zero_cells_do_not_change_the_digest(void **state)
{
	struct digest *d = digest_new();
	uint8_t *data = calloc(4, CELL);
	uint64_t cell[2], nonzero_sum[2], sum[2];

	(void)state;
	assert_non_null(d);
	assert_non_null(data);
	digest_track_nonzero(d);
	for (unsigned zeros = 0; zeros <= 4; zeros++) {
		struct block b = {.data = data, .len = 4 * CELL - 5, .pos = 8 * CELL};
		uint64_t want[2] = {0};

		memset(data, 0, 4 * CELL);
		for (unsigned i = zeros; i < 4; i++) {
			data[i * CELL + 7] = (uint8_t)(i + 1);
			cell_hash_of((8 + i) * CELL, data + i * CELL, i < 3 ? CELL : CELL - 5,
				     cell);
			sum_add(want, cell);
		}
		block_seal(&b);
		digest_reset(d);
		digest_add_block(d, &b, true);
		digest_sum(d, sum);
		digest_nonzero_sum(d, nonzero_sum);
		assert_memory_equal(nonzero_sum, want, sizeof want);
		assert_memory_equal(sum, b.hash, sizeof sum);
	}
	free(data);
	digest_free(d);
}

static void cell_digest_depends_on_its_position(void **state)
{
	uint64_t a[2], b[2];
	struct digest *d = digest_new();

	(void)state;
	assert_non_null(d);
	digest_add(d, 0, bytes, CELL);
	digest_sum(d, a);
	digest_reset(d);
	digest_add(d, CELL, bytes, CELL);
	digest_sum(d, b);
	assert_true(a[0] != b[0] || a[1] != b[1]);
	digest_free(d);
}

static void sum_carries_into_the_upper_half(void **state)
{
	uint64_t a[2] = {UINT64_MAX, UINT64_MAX};
	const uint64_t one[2] = {1, 0};

	(void)state;
	sum_add(a, one);
	assert_int_equal(a[0], 0);
	assert_int_equal(a[1], 0);
	a[0] = UINT64_MAX;
	sum_add(a, one);
	assert_int_equal(a[1], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digest_is_independent_of_splits),
		cmocka_unit_test(digest_is_independent_of_cell_order),
		cmocka_unit_test(digest_is_independent_of_lanes_and_block_size),
		cmocka_unit_test(whole_cell_is_hashed_once),
		cmocka_unit_test(zero_cells_do_not_change_the_digest),
		cmocka_unit_test(cell_digest_depends_on_its_position),
		cmocka_unit_test(sum_carries_into_the_upper_half),
	};

	return cmocka_run_group_tests(tests, make_bytes, free_bytes);
}
