/* SPDX-License-Identifier: Apache-2.0 */

/* The bytes of docs/protocol.md, "Lanes": the offset of each field, and what is refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/cursor.h"
#include "base/fail.h"
#include "lane/cell_hash.h"
#include "lane/head.h"

enum { ROOM = 65536 };

static const struct head a_head = {
	.kind = BLOCK_EXTENT,
	.lane = 0x0102 & 63,
	.epoch = 0x03040506,
	.number = 0x0708090a0b0c0d0e,
	.len = 0x1011,
	.file = 0x12131415,
	.pos = 0x161718191a1b1c1d,
	.hash = {0x1e1f202122232425, 0x262728292a2b2c2d},
};

static const uint8_t a_head_bytes[56] = {
	'S',  'L',  'B',  0x93, 1,    2,    2,    0,    6,    5,    4,    3,    0x11, 0x10,
	0,    0,    0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 9,    8,    7,    0x1d, 0x1c, 0x1b, 0x1a,
	0x19, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0,    0,    0,    0,    0x25, 0x24,
	0x23, 0x22, 0x21, 0x20, 0x1f, 0x1e, 0x2d, 0x2c, 0x2b, 0x2a, 0x29, 0x28, 0x27, 0x26,
};

static void test_head_layout_matches_the_protocol(void **arg)
{
	uint8_t bytes[LANE_HEAD] = {0};
	struct reader r = reader_of(bytes + 56, 8);
	struct head h;

	(void)arg;
	head_encode(&a_head, bytes);
	assert_memory_equal(bytes, a_head_bytes, sizeof a_head_bytes);
	assert_true(take_u64(&r) == XXH3_64bits(a_head_bytes, 56));
	assert_int_equal(head_decode(bytes, ROOM, &h), 0);
	assert_int_equal(h.kind, a_head.kind);
	assert_int_equal(h.lane, a_head.lane);
	assert_int_equal(h.epoch, a_head.epoch);
	assert_true(h.number == a_head.number);
	assert_int_equal(h.len, a_head.len);
	assert_int_equal(h.file, a_head.file);
	assert_true(h.pos == a_head.pos);
	assert_true(h.hash[0] == a_head.hash[0] && h.hash[1] == a_head.hash[1]);
}

static void test_any_flipped_bit_of_a_head_is_damage(void **arg)
{
	uint8_t bytes[LANE_HEAD];
	struct head h;

	(void)arg;
	head_encode(&a_head, bytes);
	for (unsigned i = 0; i < LANE_HEAD * 8; i++) {
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_int_equal(head_decode(bytes, ROOM, &h), -1);
		assert_int_equal(failed()->code, OUT_INTEGRITY);
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

/* Set byte `at' of a valid head to v, and recompute the check. */
static void assert_head_refused(unsigned at, uint8_t v, const char *why)
{
	uint8_t bytes[LANE_HEAD];
	struct writer w = writer_of(bytes + 56, 8);
	struct head h;

	head_encode(&a_head, bytes);
	bytes[at] = v;
	put_u64(&w, XXH3_64bits(bytes, 56));
	assert_int_equal(head_decode(bytes, ROOM, &h), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_non_null(strstr(failed()->text, why));
}

static void test_invalid_heads_are_refused(void **arg)
{
	(void)arg;
	for (unsigned i = 0; i < 4; i++)
		assert_head_refused(i, 0, "wrong magic number");
	assert_head_refused(4, 2, "version 2, not 1");
	assert_head_refused(5, 0, "kind 0");
	assert_head_refused(5, 3, "kind 3");
	assert_head_refused(6, LANE_COUNT_MAX, "lane 64");
	assert_head_refused(7, 1, "lane 258");
	assert_head_refused(14, 1, "exceed the block size");
	assert_head_refused(15, 0x80, "exceed the block size");
	assert_head_refused(31, 0x80, "position");
	assert_head_refused(31, 0xff, "position");
	for (unsigned i = 38; i < 40; i++)
		assert_head_refused(i, 0x80, "compressed from");
}

/* A compressed block has data, is shorter than before, and was no longer than a block. */
static void test_length_before_compression_is_bounded(void **arg)
{
	static const struct {
		uint32_t len, plain_len;
		bool fits;
	} cases[] = {
		{1, 2, true},        {0, 1, false},        {1, 1, false},
		{2, 1, false},       {1, ROOM, true},      {ROOM - 1, ROOM, true},
		{ROOM, ROOM, false}, {1, ROOM + 1, false}, {1, UINT32_MAX, false},
		{ROOM, 0, true},
	};

	(void)arg;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct head h = a_head, got;
		uint8_t bytes[LANE_HEAD];

		h.len = cases[i].len;
		h.plain_len = cases[i].plain_len;
		head_encode(&h, bytes);
		assert_int_equal(head_decode(bytes, ROOM, &got), cases[i].fits ? 0 : -1);
		if (cases[i].fits)
			assert_int_equal(got.plain_len, h.plain_len);
		else
			assert_int_equal(failed()->code, OUT_PROTOCOL);
	}
}

static void test_full_block_is_accepted(void **arg)
{
	struct head h = a_head;
	uint8_t bytes[LANE_HEAD];

	(void)arg;
	h.len = ROOM;
	head_encode(&h, bytes);
	assert_int_equal(head_decode(bytes, ROOM, &h), 0);
	assert_int_equal(head_decode(bytes, ROOM - 1, &h), -1);
}

static void test_seal_is_xxh3_seeded_with_the_position(void **arg)
{
	uint8_t data[1000];
	struct block b = {.data = data, .pos = 0x123456789a};

	(void)arg;
	for (unsigned i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7);
	for (b.len = 0; b.len <= sizeof data; b.len++) {
		XXH128_hash_t want = XXH3_128bits_withSeed(data, b.len, b.pos);

		block_seal(&b);
		assert_true(b.sealed);
		assert_true(b.hash[0] == want.low64 && b.hash[1] == want.high64);
	}
}

static void test_seal_covers_several_cells(void **arg)
{
	enum { MOST = 3 * CELL + 100 };
	static const uint64_t at[] = {0, 5 * CELL, 1, CELL - 1, 7 * CELL - 300};
	static const uint32_t lens[] = {CELL - 1, CELL, CELL + 1, 2 * CELL, MOST};
	uint8_t *data = malloc(MOST);

	(void)arg;
	assert_non_null(data);
	for (unsigned i = 0; i < MOST; i++)
		data[i] = (uint8_t)(i * 31 + i / 257);
	for (unsigned k = 0; k < sizeof at / sizeof *at * sizeof lens / sizeof *lens; k++) {
		struct block b = {.data = data, .pos = at[k % 5], .len = lens[k / 5]};
		uint64_t low = 0, high = 0;

		for (uint64_t pos = b.pos, end; pos < b.pos + b.len; pos = end) {
			end = (pos / CELL + 1) * CELL;
			if (end > b.pos + b.len)
				end = b.pos + b.len;
			size_t from = (size_t)(pos - b.pos), n = (size_t)(end - pos);
			XXH128_hash_t h = XXH3_128bits_withSeed(data + from, n, pos);

			low += h.low64;
			high += h.high64 + (low < h.low64);
		}
		block_seal(&b);
		assert_true(b.hash[0] == low && b.hash[1] == high);
	}
	free(data);
}

static void test_credit_layout_matches_the_protocol(void **arg)
{
	const uint8_t want[CREDIT_SIZE] = {'S', 'L', 'C', 0x93, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1};
	struct credit c = {.epoch = 0x01020304, .stored = 0x0102030405060708};
	uint8_t bytes[CREDIT_SIZE];

	(void)arg;
	credit_encode(&c, bytes);
	assert_memory_equal(bytes, want, sizeof want);
	assert_int_equal(credit_decode(bytes, &c), 0);
	assert_int_equal(c.epoch, 0x01020304);
	assert_true(c.stored == 0x0102030405060708);
	for (unsigned i = 0; i < 4; i++) {
		bytes[i] ^= 1;
		assert_int_equal(credit_decode(bytes, &c), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
		bytes[i] ^= 1;
	}
}

/* ---- hellos ---------------------------------------------------------------------------- */

static struct lane_key a_key(void)
{
	struct lane_key key;

	for (unsigned i = 0; i < LANE_SECRET; i++) {
		key.secret[i] = (uint8_t)i;
		key.nonces[0][i] = (uint8_t)(100 + i);
		key.nonces[1][i] = (uint8_t)(200 + i);
	}
	key.session = 0x1112131415161718;
	return key;
}

static const struct lane_hello a_hello = {
	.from = LANE_SINK,
	.accepting = 1,
	.session = 0x1112131415161718,
	.lane = 5,
	.epoch = 0x01020304,
	.block_size = 262144,
	.depth = 12,
};

/*
 * The mac was computed with Python: hmac.new(secret, b"sluice lane" + nonces + first 40 bytes,
 * "sha256"); so was the token below.
 */
static const uint8_t a_hello_bytes[LANE_HELLO_SIZE] = {
	'S',  'L',  'H',  0x93, 0x01, 0x02, 0x01, 0x00, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12,
	0x11, 0x05, 0x00, 0x0c, 0x00, 0x04, 0x03, 0x02, 0x01, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x4e, 0x7c, 0xbb, 0xd5, 0xea,
	0xf1, 0x67, 0xab, 0xf5, 0x1a, 0x5f, 0xd4, 0x5c, 0x9f, 0xc8, 0xdd, 0x0d, 0x2d, 0x22, 0x14,
	0x5e, 0x1b, 0x6b, 0x5f, 0x2a, 0x6f, 0x46, 0x73, 0xd5, 0xa3, 0x40, 0x48,
};

static void test_hello_layout_matches_the_protocol(void **arg)
{
	struct lane_key key = a_key();
	struct lane_hello h = a_hello;
	uint8_t bytes[LANE_HELLO_SIZE];

	(void)arg;
	lane_hello_sign(&h, &key);
	lane_hello_encode(&h, bytes);
	assert_memory_equal(bytes, a_hello_bytes, sizeof bytes);
	memset(&h, 0, sizeof h);
	assert_int_equal(lane_hello_decode(bytes, &h), 0);
	assert_int_equal(lane_hello_verify(&h, &key), 0);
	assert_int_equal(h.from, a_hello.from);
	assert_int_equal(h.accepting, a_hello.accepting);
	assert_true(h.session == a_hello.session);
	assert_int_equal(h.lane, a_hello.lane);
	assert_int_equal(h.epoch, a_hello.epoch);
	assert_int_equal(h.block_size, a_hello.block_size);
	assert_int_equal(h.depth, a_hello.depth);
}

static void test_any_flipped_bit_of_a_hello_is_refused(void **arg)
{
	struct lane_key key = a_key();
	uint8_t bytes[LANE_HELLO_SIZE];

	(void)arg;
	memcpy(bytes, a_hello_bytes, sizeof bytes);
	for (unsigned i = 0; i < sizeof bytes * 8; i++) {
		struct lane_hello h;

		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_true(lane_hello_decode(bytes, &h) || lane_hello_verify(&h, &key));
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

static void test_hello_is_bound_to_one_key(void **arg)
{
	(void)arg;
	for (unsigned i = 0; i < offsetof(struct lane_key, session); i++) {
		struct lane_key key = a_key();
		struct lane_hello h;

		((uint8_t *)&key)[i] ^= 1;
		assert_int_equal(lane_hello_decode(a_hello_bytes, &h), 0);
		assert_int_equal(lane_hello_verify(&h, &key), -1);
		assert_int_equal(failed()->code, OUT_AUTH);
	}
}

static void assert_hello_refused(struct lane_hello h, const char *why)
{
	uint8_t bytes[LANE_HELLO_SIZE];

	lane_hello_encode(&h, bytes);
	assert_int_equal(lane_hello_decode(bytes, &h), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_non_null(strstr(failed()->text, why));
}

static void test_invalid_hellos_are_refused(void **arg)
{
	struct lane_hello h = a_hello;

	(void)arg;
	h.from = 3;
	assert_hello_refused(h, "neither source nor sink");
	h = a_hello;
	h.accepting = 2;
	assert_hello_refused(h, "neither connecting nor accepting");
	h = a_hello;
	h.lane = LANE_COUNT_MAX;
	assert_hello_refused(h, "lane 64");
	h = a_hello;
	h.depth = 0;
	assert_hello_refused(h, "depth 0");
	h.depth = LANE_DEPTH_MAX + 1;
	assert_hello_refused(h, "depth 1025");
	h = a_hello;
	h.block_size = LANE_BLOCK_MIN / 2;
	assert_hello_refused(h, "block size 2048");
	h.block_size = LANE_BLOCK_MAX * 2;
	assert_hello_refused(h, "block size");
	h.block_size = 3 * 4096;
	assert_hello_refused(h, "not a power of two");
	h.block_size = 0;
	assert_hello_refused(h, "block size 0");
	h = a_hello;
	h.ring.key = 1;
	assert_hello_refused(h, "reserved bytes are not 0");
	h.ring.at = LANE_PAGE + LANE_HEAD;
	assert_hello_refused(h, "invalid ring");
	h.ring.at = LANE_PAGE;
	h.from = LANE_SOURCE;
	assert_hello_refused(h, "invalid ring");
}

static void test_hello_carries_a_ring(void **arg)
{
	struct lane_key key = a_key();
	struct lane_hello h = a_hello, got;
	uint8_t bytes[LANE_HELLO_SIZE];

	(void)arg;
	h.ring = (struct lane_ring){0x1122334455667000, 0x01020304};
	lane_hello_sign(&h, &key);
	lane_hello_encode(&h, bytes);
	assert_memory_equal(bytes + 28, "\x00\x70\x66\x55\x44\x33\x22\x11\x04\x03\x02\x01", 12);
	for (unsigned i = 28 * 8; i < 40 * 8; i++) {
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_true(lane_hello_decode(bytes, &got) || lane_hello_verify(&got, &key));
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	assert_int_equal(lane_hello_decode(bytes, &got), 0);
	assert_int_equal(lane_hello_verify(&got, &key), 0);
	assert_int_equal(got.ring.at, h.ring.at);
	assert_int_equal(got.ring.key, h.ring.key);
}

/* ---- notices --------------------------------------------------------------------------- */

static void assert_notice_refused(struct notice n, const char *why)
{
	uint8_t bytes[NOTICE_SIZE];

	notice_encode(&n, bytes);
	assert_int_equal(notice_decode(bytes, &n), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_non_null(strstr(failed()->text, why));
}

static void test_notice_layout_matches_the_protocol(void **arg)
{
	const uint8_t want[NOTICE_SIZE] = {'S', 'L', 'N', 0x93, 4,  3, 2, 1,
					   5,   0,   0,   0,    64, 0, 4, 0};
	struct notice n = {.epoch = 0x01020304, .slot = 5, .len = 262144 + LANE_HEAD}, got;
	uint8_t bytes[NOTICE_SIZE];

	(void)arg;
	notice_encode(&n, bytes);
	assert_memory_equal(bytes, want, sizeof want);
	assert_int_equal(notice_decode(bytes, &got), 0);
	assert_int_equal(got.epoch, n.epoch);
	assert_int_equal(got.slot, n.slot);
	assert_int_equal(got.len, n.len);
	for (unsigned i = 0; i < 4; i++) {
		bytes[i] ^= 1;
		assert_int_equal(notice_decode(bytes, &got), -1);
		bytes[i] ^= 1;
	}
	n.slot = LANE_DEPTH_MAX;
	assert_notice_refused(n, "slot 1024 is beyond");
	n.slot = UINT32_MAX;
	assert_notice_refused(n, "is beyond");
	n.slot = LANE_DEPTH_MAX - 1;
	n.len = LANE_HEAD - 1;
	assert_notice_refused(n, "notice from the peer: 63 bytes");
	n.len = LANE_HEAD + LANE_BLOCK_MAX + 1;
	assert_notice_refused(n, "bytes are not in");
	n.len = UINT32_MAX;
	assert_notice_refused(n, "bytes are not in");
}

/* ---- connection requests --------------------------------------------------------------- */

static void test_private_data_layout_matches_the_protocol(void **arg)
{
	const uint8_t want[LANE_PRIVATE_SIZE] = {
		'S', 'L', 'P', 0x93, 1, 0, 0, 0, 5, 0, 12, 0, 4, 3,  2,  1,  0,  0,  4,  0,
		0,   0,   0,   0,    1, 2, 3, 4, 5, 6, 7,  8, 9, 10, 11, 12, 13, 14, 15, 16,
	};
	struct lane_private p = {
		.lane = 5,
		.epoch = 0x01020304,
		.depth = 12,
		.block_size = 262144,
		.token = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	};
	uint8_t bytes[256] = {0};

	(void)arg;
	lane_private_encode(&p, bytes);
	assert_memory_equal(bytes, want, sizeof want);
	memset(&p, 0, sizeof p);
	assert_int_equal(lane_private_decode(bytes, sizeof bytes, &p), 0);
	assert_int_equal(p.lane, 5);
	assert_int_equal(p.epoch, 0x01020304);
	assert_int_equal(p.depth, 12);
	assert_int_equal(p.block_size, 262144);
	assert_memory_equal(p.token, want + 24, LANE_TOKEN);
	for (size_t len = 0; len < LANE_PRIVATE_SIZE; len++)
		assert_int_equal(lane_private_decode(bytes, len, &p), -1);
	for (unsigned i = 0; i < 24; i++) {
		if (i >= 8 && i < 16 && i != 9)
			continue; /* lane, depth, epoch: other values may be valid */
		bytes[i] ^= 0x80;
		assert_int_equal(lane_private_decode(bytes, LANE_PRIVATE_SIZE, &p), -1);
		bytes[i] ^= 0x80;
	}
}

static void test_tokens_differ(void **arg)
{
	struct lane_key key = a_key();
	uint8_t first[LANE_TOKEN], other[LANE_TOKEN];
	const uint8_t want[LANE_TOKEN] = {0xf9, 0x44, 0x7b, 0xc2, 0xb9, 0x5f, 0x52, 0xd2,
					  0xb1, 0x6c, 0x74, 0x75, 0x34, 0xa0, 0x95, 0x67};

	(void)arg;
	lane_token(&key, 5, 0x01020304, first);
	assert_memory_equal(first, want, sizeof want);
	lane_token(&key, 6, 0x01020304, other);
	assert_memory_not_equal(first, other, sizeof first);
	lane_token(&key, 5, 0x01020305, other);
	assert_memory_not_equal(first, other, sizeof first);
	key.session ^= 1;
	lane_token(&key, 5, 0x01020304, other);
	assert_memory_not_equal(first, other, sizeof first);
	key.session ^= 1;
	key.nonces[1][31] ^= 1;
	lane_token(&key, 5, 0x01020304, other);
	assert_memory_not_equal(first, other, sizeof first);
}

/* The reason of a refused request: complete, padded, truncated, and unknown. */
static void test_refusal_reasons_are_decoded(void **arg)
{
	struct lane_refusal f = {.code = OUT_MEMLOCK, .limit = 65536, .need = UINT64_C(3) << 33};
	uint8_t bytes[148] = {0};

	(void)arg;
	lane_refusal_encode(&f, bytes);
	f = (struct lane_refusal){.code = 0};
	assert_int_equal(lane_refusal_decode(bytes, sizeof bytes, &f), 0);
	assert_int_equal(f.code, OUT_MEMLOCK);
	assert_true(f.limit == 65536 && f.need == UINT64_C(3) << 33);
	for (size_t len = 0; len < LANE_REFUSAL_SIZE; len++)
		assert_int_equal(lane_refusal_decode(bytes, len, &f), -1);
	for (unsigned i = 0; i < 8; i++) {
		bytes[i] ^= 1;
		assert_int_equal(lane_refusal_decode(bytes, sizeof bytes, &f), -1);
		bytes[i] ^= 1;
	}
	memset(bytes, 0, sizeof bytes);
	assert_int_equal(lane_refusal_decode(bytes, sizeof bytes, &f), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_layout_matches_the_protocol),
		cmocka_unit_test(test_any_flipped_bit_of_a_head_is_damage),
		cmocka_unit_test(test_invalid_heads_are_refused),
		cmocka_unit_test(test_length_before_compression_is_bounded),
		cmocka_unit_test(test_full_block_is_accepted),
		cmocka_unit_test(test_seal_is_xxh3_seeded_with_the_position),
		cmocka_unit_test(test_seal_covers_several_cells),
		cmocka_unit_test(test_credit_layout_matches_the_protocol),
		cmocka_unit_test(test_hello_layout_matches_the_protocol),
		cmocka_unit_test(test_any_flipped_bit_of_a_hello_is_refused),
		cmocka_unit_test(test_hello_is_bound_to_one_key),
		cmocka_unit_test(test_invalid_hellos_are_refused),
		cmocka_unit_test(test_hello_carries_a_ring),
		cmocka_unit_test(test_notice_layout_matches_the_protocol),
		cmocka_unit_test(test_private_data_layout_matches_the_protocol),
		cmocka_unit_test(test_refusal_reasons_are_decoded),
		cmocka_unit_test(test_tokens_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
