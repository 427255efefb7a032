/* SPDX-License-Identifier: Apache-2.0 */

/* The compression of blocks, and everything that must not be decompressed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "lane/compress.h"
#include "lane/head.h"
#include "lane/seal.h"

enum { ROOM = 65536, MUTATIONS = 2000 };

struct memory {
	_Alignas(64) uint8_t head[LANE_HEAD];
	uint8_t data[ROOM];
	struct block b;
};

static struct memory arrived, private, plain;
static struct compressor *compressor;
static struct inflater *inflater;
static struct lane_key key;

static int begin(void **state)
{
	(void)state;
	return compressor_open(3, ROOM, &compressor) || inflater_open(&inflater);
}

static int end(void **state)
{
	(void)state;
	compressor_close(compressor);
	inflater_close(inflater);
	return 0;
}

static void fill_text(uint8_t *to, uint32_t len)
{
	static const char *const words[] = {"lane ", "block ", "source ", "sink ", "credit "};
	uint32_t seed = 1, at = 0;

	while (at < len) {
		const char *w = words[(seed = seed * 1664525 + 1013904223) >> 24 & 3];
		uint32_t n = (uint32_t)strlen(w);

		memcpy(to + at, w, n < len - at ? n : len - at);
		at += n;
	}
}

static void fill_noise(uint8_t *to, uint32_t len)
{
	uint64_t seed = 88172645463325252;

	for (uint32_t i = 0; i < len; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		to[i] = (uint8_t)(seed >> 32);
	}
}

static bool is_text(const uint8_t *at, uint32_t len)
{
	static uint8_t want[ROOM];

	fill_text(want, len);
	return memcmp(at, want, len) == 0;
}

static void blocks_come_back(void **state)
{
	static const uint32_t lengths[] = {100, 1000, 4096, 4097, ROOM - 1, ROOM};
	static uint8_t packed[ROOM], back[ROOM + 1];

	(void)state;
	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		uint32_t len = lengths[i], n;

		fill_text(packed, len);
		n = compressor_pack(compressor, packed, len);
		if (len >= 1000)
			assert_in_range(n, 1, len / 2);
		if (n == 0)
			continue;
		back[len] = 0xa5;
		assert_int_equal(inflater_unpack(inflater, packed, n, back, len), 0);
		assert_true(is_text(back, len));
		assert_int_equal(back[len], 0xa5);
	}
}

static void no_block_grows(void **state)
{
	static uint8_t data[ROOM], before[ROOM];

	(void)state;
	for (uint32_t len = 0; len <= ROOM; len = len * 2 + 1) {
		fill_noise(data, len);
		memcpy(before, data, len);
		assert_int_equal(compressor_pack(compressor, data, len), 0);
		assert_memory_equal(data, before, len);
	}
	assert_int_equal(compressor_pack(compressor, data, ROOM + 1), 0);
}

static void wrong_frames_are_refused(void **state)
{
	static uint8_t packed[2 * ROOM], back[ROOM + 16];
	static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 7};
	uint32_t n;

	(void)state;
	fill_text(packed, ROOM);
	n = compressor_pack(compressor, packed, ROOM);
	assert_in_range(n, 1, ROOM / 2);
	for (uint32_t len = 0; len < n; len++)
		assert_int_equal(inflater_unpack(inflater, packed, len, back, ROOM), -1);
	/* another size than the frame states: a bomb would be larger */
	assert_int_equal(inflater_unpack(inflater, packed, n, back, ROOM - 1), -1);
	assert_int_equal(inflater_unpack(inflater, packed, n, back, ROOM + 1), -1);
	assert_int_equal(inflater_unpack(inflater, packed, n, back, 1), -1);
	/* more behind the frame, which zstd itself would take */
	memcpy(packed + n, packed, n);
	assert_int_equal(inflater_unpack(inflater, packed, 2 * n, back, ROOM), -1);
	memcpy(packed + n, skippable, sizeof skippable);
	assert_int_equal(inflater_unpack(inflater, packed, n + sizeof skippable, back, ROOM), -1);
	assert_int_equal(inflater_unpack(inflater, skippable, sizeof skippable, back, 1), -1);
	assert_int_equal(inflater_unpack(inflater, packed, n, back, ROOM), 0);
}

static void mutated_frames_stay_in_bounds(void **state)
{
	static uint8_t packed[ROOM], mutated[ROOM];
	uint8_t *back = malloc(ROOM); /* so that a sanitizer guards its end */
	uint32_t n, seed = 7;

	(void)state;
	fill_text(packed, ROOM);
	n = compressor_pack(compressor, packed, ROOM);
	for (unsigned i = 0; i < MUTATIONS; i++) {
		memcpy(mutated, packed, n);
		for (unsigned k = 0; k <= i % 4; k++) {
			seed = seed * 1664525 + 1013904223;
			mutated[(seed >> 8) % (i % 2 ? n : 32)] ^= (uint8_t)(1 << (seed >> 29));
		}
		inflater_unpack(inflater, mutated, n, back, ROOM);
	}
	free(back);
}

/* ---- whole blocks ----------------------------------------------------------------------- */

static void pack(struct memory *m, uint32_t len)
{
	uint32_t n;

	memset(m, 0, sizeof *m);
	fill_text(m->data, len);
	m->b = (struct block){
		.data = m->data, .len = len, .kind = BLOCK_EXTENT, .file = 3, .pos = 1 << 20};
	block_seal(&m->b);
	n = compressor_pack(compressor, m->data, len);
	assert_in_range(n, 1, len);
	m->b.plain_len = len;
	m->b.len = n;
}

static enum unsealed unseal(struct cipher *c, bool exposed, struct block **out)
{
	struct unseal_terms t = {.cipher = c,
				 .lane = 2,
				 .epoch = 4,
				 .room = ROOM,
				 .inflater = inflater,
				 .plain = &plain.b};
	uint64_t ns = 0;

	private.b.data = private.data;
	plain.b.data = plain.data;
	*out = &arrived.b;
	fail_clear();
	return block_unseal(out, exposed ? &private.b : NULL, &t, &ns);
}

static void compressed_blocks_arrive(void **state)
{
	struct block *b;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct cipher *source = NULL, *sink = NULL;
		uint64_t hash[2];

		pack(&arrived, 5000);
		memcpy(hash, arrived.b.hash, sizeof hash);
		arrived.b.slot = 9;
		if (i & 1) {
			cipher_open(CIPHER_AES_256_GCM, &key, 2, CIPHER_REKEY, &source);
			cipher_open(CIPHER_AES_256_GCM, &key, 2, CIPHER_REKEY, &sink);
			assert_false(cipher_begin(source, 4) || cipher_begin(sink, 4));
			assert_int_equal(seal_encrypt(&arrived.b, source, 2, 4, NULL), 0);
		} else {
			seal_head(&arrived.b, 2, 4);
		}
		assert_int_equal(unseal(sink, i & 2, &b), UNSEAL_WHOLE);
		assert_ptr_equal(b, &plain.b);
		assert_int_equal(b->len, 5000);
		assert_int_equal(b->wire_len, arrived.b.len);
		assert_int_equal(b->slot, 9);
		assert_int_equal(b->file, 3);
		assert_true(b->pos == 1 << 20);
		assert_true(is_text(b->data, 5000));
		assert_memory_equal(b->hash, hash, sizeof hash);
		cipher_close(source);
		cipher_close(sink);
	}
}

static void damaged_compressed_blocks_are_damage(void **state)
{
	unsigned damaged = 0, harmless = 0;
	struct block *b;

	(void)state;
	for (uint32_t i = 0; i < 200; i++) {
		pack(&arrived, 5000);
		seal_head(&arrived.b, 2, 4);
		arrived.data[i % arrived.b.len] ^= (uint8_t)(1 << (i & 7));
		/* Some bits of a frame mean nothing. */
		if (unseal(NULL, i & 1, &b) == UNSEAL_WHOLE)
			harmless += is_text(b->data, 5000) && b->len == 5000;
		else
			damaged++;
	}
	assert_int_equal(damaged + harmless, 200);
	assert_true(damaged > 190);
	/* A head that states another size than the frame. */
	for (uint32_t i = 0; i < 3; i++) {
		pack(&arrived, 5000);
		arrived.b.plain_len = i == 0 ? 4999 : i == 1 ? 5001 : ROOM;
		seal_head(&arrived.b, 2, 4);
		assert_int_equal(unseal(NULL, false, &b), UNSEAL_DAMAGED);
	}
}

static void compressed_block_is_refused_unless_agreed(void **state)
{
	struct unseal_terms t = {.lane = 2, .epoch = 4, .room = ROOM};
	struct block *b = &arrived.b;
	uint64_t ns;

	(void)state;
	pack(&arrived, 5000);
	seal_head(&arrived.b, 2, 4);
	assert_int_equal(block_unseal(&b, NULL, &t, &ns), UNSEAL_WRONG);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_non_null(strstr(failed()->text, "not agreed"));
}

static void wishes_are_checked(void **state)
{
	(void)state;
	assert_int_equal(make_compress_wish(0), 0);
	assert_int_equal(make_compress_wish(3), 0);
	assert_int_equal(make_compress_wish(5 << 2), 0);
	assert_int_equal(make_compress_wish(23 << 2 | COMPRESS_ALWAYS), 0);
	assert_int_equal(get_compress_level(make_compress_wish(22 << 2 | COMPRESS_AUTO)), 22);
	assert_int_equal(get_compress_level(make_compress_wish(COMPRESS_AUTO)), COMPRESS_LEVEL);
	assert_int_equal(get_compress_mode(make_compress_wish(COMPRESS_ALWAYS)), COMPRESS_ALWAYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wishes_are_checked),
		cmocka_unit_test(blocks_come_back),
		cmocka_unit_test(no_block_grows),
		cmocka_unit_test(wrong_frames_are_refused),
		cmocka_unit_test(mutated_frames_stay_in_bounds),
		cmocka_unit_test(compressed_blocks_arrive),
		cmocka_unit_test(damaged_compressed_blocks_are_damage),
		cmocka_unit_test(compressed_block_is_refused_unless_agreed),
	};
	const struct CMUnitTest without_zstd[] = {
		cmocka_unit_test(wishes_are_checked),
	};

	if (!compress_known())
		return cmocka_run_group_tests(without_zstd, NULL, NULL);
	return cmocka_run_group_tests(tests, begin, end);
}
