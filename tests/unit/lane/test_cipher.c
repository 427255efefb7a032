/* SPDX-License-Identifier: Apache-2.0 */

/* The encryption of blocks: known answers, and everything that must not decrypt. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "lane/cipher.h"
#include "lane/seal.h"

enum { LEN = 5000, ROOM = 8192, MUTATIONS = 1000 };

static struct lane_key key;

/* A block with its head, as a pool has it. */
struct memory {
	_Alignas(64) uint8_t head[LANE_HEAD];
	uint8_t data[ROOM];
	struct block b;
};

static struct cipher *cipher_of(enum cipher_kind kind, unsigned lane)
{
	struct cipher *c;

	assert_int_equal(cipher_open(kind, &key, lane, CIPHER_REKEY, &c), 0);
	return c;
}

static void fill(struct memory *m, uint64_t number, uint32_t len)
{
	memset(m, 0, sizeof *m);
	for (uint32_t i = 0; i < len; i++)
		m->data[i] = (uint8_t)(i * 7 + number);
	m->b = (struct block){
		.data = m->data,
		.len = len,
		.kind = BLOCK_EXTENT,
		.file = 3,
		.pos = number * ROOM,
		.number = number,
	};
}

static bool is_clear(const struct memory *m, uint64_t number, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (m->data[i] != (uint8_t)(i * 7 + number))
			return false;
	return true;
}

static enum unsealed unseal(struct memory *m, struct cipher *c, unsigned lane, uint32_t epoch,
			    uint64_t number)
{
	struct unseal_terms t = {
		.cipher = c, .lane = lane, .epoch = epoch, .number = number, .room = ROOM};
	struct block *b = &m->b;

	return block_unseal(&b, NULL, &t, &(uint64_t){0});
}

/* Computed with Python's cryptography, from docs/protocol.md alone. */
static void test_known_answers(void **state)
{
	static const struct {
		enum cipher_kind kind;
		const char *tag, *data;
	} known[] = {
		{CIPHER_AES_256_GCM, "10383ae25ce4020a6fb5067e3d123d9f",
		 "e0942b1b7a89e01af332cf4a90a651a8"},
		{CIPHER_CHACHA20_POLY1305, "38dc519b6dd17d171ae428c311b75c60",
		 "5fd8520a8cfb8e4e1663ff2c4ddc4a3a"},
	};
	struct memory m;

	(void)state;
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
		struct cipher *c = cipher_of(known[i].kind, 2);
		char text[33] = "", data[33] = "";

		fill(&m, 5, 16);
		assert_int_equal(cipher_begin(c, 9), 0);
		assert_int_equal(seal_encrypt(&m.b, c, 2, 9, NULL), 0);
		for (unsigned k = 0; k < 16; k++) {
			snprintf(text + 2 * k, 3, "%02x", m.head[LANE_HEAD_SEALED + k]);
			snprintf(data + 2 * k, 3, "%02x", m.data[k]);
		}
		assert_string_equal(text, known[i].tag);
		assert_string_equal(data, known[i].data);
		cipher_close(c);
	}
}

/* Two ends of lane 2 at epoch 4. */
struct ends {
	struct cipher *source, *sink;
};

static struct ends ends_of(enum cipher_kind kind, uint32_t epoch)
{
	struct ends e = {cipher_of(kind, 2), cipher_of(kind, 2)};

	assert_int_equal(cipher_begin(e.source, epoch), 0);
	assert_int_equal(cipher_begin(e.sink, epoch), 0);
	return e;
}

static void ends_close(struct ends *e)
{
	cipher_close(e->source);
	cipher_close(e->sink);
}

static void test_blocks_return(void **state)
{
	static const uint32_t lens[] = {0, 1, 15, 16, 17, LEN, ROOM};
	struct memory m;

	(void)state;
	for (enum cipher_kind k = CIPHER_AES_256_GCM; k <= CIPHER_CHACHA20_POLY1305; k++) {
		struct ends e = ends_of(k, 4);

		for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
			fill(&m, i, lens[i]);
			assert_int_equal(seal_encrypt(&m.b, e.source, 2, 4, NULL), 0);
			assert_true(lens[i] < 15 || !is_clear(&m, i, lens[i]));
			assert_int_equal(unseal(&m, e.sink, 2, 4, i), UNSEAL_WHOLE);
			assert_true(is_clear(&m, i, lens[i]));
		}
		ends_close(&e);
	}
}

/* One change of a block on the way: a bit anywhere, a length, or another head that is well formed.
 */
static void mutate(struct memory *m, unsigned *seed)
{
	unsigned what = (unsigned)rand_r(seed) % 4;
	struct head h;

	if (what == 0) {
		m->data[(unsigned)rand_r(seed) % m->b.len] ^= (uint8_t)(1u << rand_r(seed) % 8);
		return;
	}
	if (what == 1) {
		m->head[(unsigned)rand_r(seed) % (LANE_HEAD - 8)] ^=
			(uint8_t)(1u << rand_r(seed) % 8);
		if (rand_r(seed) % 2)
			head_finish(m->head);
		return;
	}
	assert_int_equal(head_decode(m->head, ROOM, &h), 0);
	switch ((unsigned)rand_r(seed) % 7) {
	case 0:
		h.pos += 1 + (unsigned)rand_r(seed) % 100;
		break;
	case 1:
		h.file += 1 + (unsigned)rand_r(seed) % 100;
		break;
	case 2:
		h.kind = BLOCK_RECORDS;
		break;
	case 3: /* truncated, and the transport agrees */
		m->b.len = h.len = (unsigned)rand_r(seed) % h.len;
		break;
	case 4:
		h.hash[rand_r(seed) % 2] ^= 1ull << rand_r(seed) % 63;
		break;
	case 5: /* longer */
		m->b.len = h.len = h.len + 1 + (unsigned)rand_r(seed) % (ROOM - h.len);
		break;
	default:
		h.hash[0] = h.hash[1] = 0;
	}
	head_encode(&h, m->head);
}

static void test_mutated_blocks_are_refused(void **state)
{
	const char *text = getenv("SLUICE_COUNT");
	unsigned count = MUTATIONS * (text && atoi(text) > 1 ? (unsigned)atoi(text) : 1), seed = 1;
	struct memory sealed, m;

	(void)state;
	for (unsigned i = 0; i < count; i++) {
		struct ends e = ends_of(1 + i % 2, 4);
		enum unsealed got;

		fill(&sealed, i, 1 + (unsigned)rand_r(&seed) % LEN);
		assert_int_equal(seal_encrypt(&sealed.b, e.source, 2, 4, NULL), 0);
		m = sealed;
		m.b.data = m.data;
		mutate(&m, &seed);
		got = unseal(&m, e.sink, 2, 4, i);
		assert_int_not_equal(got, UNSEAL_WHOLE);
		if (got == UNSEAL_WRONG)
			assert_int_equal(failed()->code, OUT_PROTOCOL);
		ends_close(&e);
	}
}

/* A block as it was sent is taken nowhere else: on another lane, wire or place in the order, by the
 * other cipher, in another session, or a second time. */
static void test_blocks_are_bound_to_their_place(void **state)
{
	struct memory m, again;
	struct ends e = ends_of(CIPHER_AES_256_GCM, 4);
	static const struct {
		unsigned lane;
		uint32_t epoch;
		uint64_t number;
	} elsewhere[] = {{3, 4, 0}, {2, 5, 0}, {2, 4, 1}};

	(void)state;
	fill(&m, 0, LEN);
	assert_int_equal(seal_encrypt(&m.b, e.source, 2, 4, NULL), 0);
	again = m;
	again.b.data = again.data;
	for (unsigned i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
		struct cipher *c = cipher_of(CIPHER_AES_256_GCM, elsewhere[i].lane);
		struct memory moved = again;
		struct head h;

		moved.b.data = moved.data;
		assert_int_equal(cipher_begin(c, elsewhere[i].epoch), 0);
		assert_int_equal(unseal(&moved, c, elsewhere[i].lane, elsewhere[i].epoch,
					elsewhere[i].number),
				 UNSEAL_DAMAGED);
		/* With a head that claims to belong there. */
		assert_int_equal(head_decode(moved.head, ROOM, &h), 0);
		h.lane = (uint16_t)elsewhere[i].lane;
		h.epoch = elsewhere[i].epoch;
		h.number = elsewhere[i].number;
		head_encode(&h, moved.head);
		assert_int_equal(unseal(&moved, c, elsewhere[i].lane, elsewhere[i].epoch,
					elsewhere[i].number),
				 UNSEAL_DAMAGED);
		cipher_close(c);
	}
	assert_int_equal(unseal(&m, e.sink, 2, 4, 0), UNSEAL_WHOLE);
	assert_int_equal(unseal(&again, e.sink, 2, 4, 1), UNSEAL_DAMAGED);
	ends_close(&e);
}

static void test_another_session_has_other_keys(void **state)
{
	const struct lane_key before = key;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct ends e = ends_of(CIPHER_CHACHA20_POLY1305, 4);
		struct cipher *other;
		struct memory m;

		fill(&m, 0, LEN);
		assert_int_equal(seal_encrypt(&m.b, e.source, 2, 4, NULL), 0);
		*(i == 0 ? &key.secret[31] : &key.nonces[i - 1][31]) ^= 1;
		other = cipher_of(CIPHER_CHACHA20_POLY1305, 2);
		assert_int_equal(cipher_begin(other, 4), 0);
		assert_int_equal(unseal(&m, other, 2, 4, 0), UNSEAL_DAMAGED);
		key = before;
		cipher_close(other);
		ends_close(&e);
	}
}

/* No key encrypts a number twice. */
static void test_epochs_and_numbers_only_grow(void **state)
{
	struct cipher *c = cipher_of(CIPHER_AES_256_GCM, 2);
	struct memory m;

	(void)state;
	fill(&m, 7, LEN);
	assert_int_equal(seal_encrypt(&m.b, c, 2, 0, NULL), -1);
	assert_int_equal(cipher_begin(c, 3), 0);
	assert_int_equal(cipher_begin(c, 3), -1);
	assert_int_equal(cipher_begin(c, 2), -1);
	assert_int_equal(seal_encrypt(&m.b, c, 2, 3, NULL), 0);
	for (uint64_t n = 6; n <= 7; n++) {
		fill(&m, n, LEN);
		assert_int_equal(seal_encrypt(&m.b, c, 2, 3, NULL), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
	}
	cipher_close(c);
}

/* A block goes over one wire after the other, encrypted anew for each, and its clear text never
 * returns to the memory that a wire reads. */
static void test_blocks_are_encrypted_anew(void **state)
{
	struct cipher *source = cipher_of(CIPHER_AES_256_GCM, 2);
	uint8_t scratch[ROOM], before[LEN];
	struct memory m, arrived;

	(void)state;
	fill(&m, 5, LEN);
	for (uint32_t epoch = 1; epoch < 5; epoch++) {
		struct cipher *sink = cipher_of(CIPHER_AES_256_GCM, 2);

		memcpy(before, m.data, LEN);
		assert_int_equal(cipher_begin(source, epoch), 0);
		assert_int_equal(cipher_begin(sink, epoch), 0);
		assert_int_equal(seal_encrypt(&m.b, source, 2, epoch, scratch), 0);
		assert_memory_not_equal(before, m.data, LEN);
		arrived = m;
		arrived.b.data = arrived.data;
		assert_int_equal(unseal(&arrived, sink, 2, epoch, 5), UNSEAL_WHOLE);
		assert_true(is_clear(&arrived, 5, LEN));
		cipher_close(sink);
	}
	m.data[9] ^= 1;
	assert_int_equal(cipher_begin(source, 5), 0);
	assert_int_equal(seal_encrypt(&m.b, source, 2, 5, scratch), -1);
	assert_int_equal(failed()->code, OUT_INTEGRITY);
	cipher_close(source);
}

/* Both ends change the key at the same block; a block of an old key can still be sent anew. */
static void test_keys_change(void **state)
{
	static struct memory sent[9];
	struct cipher *source, *sink;
	uint8_t scratch[ROOM];
	struct memory m;

	(void)state;
	assert_int_equal(cipher_open(CIPHER_AES_256_GCM, &key, 2, 2 * (LEN + LANE_HEAD), &source),
			 0);
	assert_int_equal(cipher_open(CIPHER_AES_256_GCM, &key, 2, 2 * (LEN + LANE_HEAD), &sink), 0);
	for (uint32_t epoch = 0; epoch < 2; epoch++) {
		assert_int_equal(cipher_begin(source, epoch), 0);
		assert_int_equal(cipher_begin(sink, epoch), 0);
		for (unsigned i = 0; i < 9; i++) {
			if (epoch == 0) {
				fill(&sent[i], i, LEN);
				sent[i].b.data = sent[i].data;
			}
			assert_int_equal(seal_encrypt(&sent[i].b, source, 2, epoch, scratch), 0);
			assert_int_equal(sent[i].b.key_number, i / 2);
			m = sent[i];
			m.b.data = m.data;
			assert_int_equal(unseal(&m, sink, 2, epoch, i), UNSEAL_WHOLE);
			assert_true(is_clear(&m, i, LEN));
		}
	}
	cipher_close(source);
	cipher_close(sink);
}

/* What the sender can still change is copied before it is checked. */
static void test_exposed_blocks_are_copied(void **state)
{
	struct ends e = ends_of(CIPHER_AES_256_GCM, 4);
	struct memory m, private;
	struct unseal_terms t = {.cipher = e.sink, .lane = 2, .epoch = 4, .room = ROOM};
	struct block *b = &m.b;

	(void)state;
	fill(&m, 0, LEN);
	fill(&private, 1, ROOM);
	assert_int_equal(seal_encrypt(&m.b, e.source, 2, 4, NULL), 0);
	assert_int_equal(block_unseal(&b, &private.b, &t, &(uint64_t){0}), UNSEAL_WHOLE);
	assert_ptr_equal(b, &private.b);
	assert_true(is_clear(&private, 0, LEN));
	assert_false(is_clear(&m, 0, LEN));
	ends_close(&e);
}

static void test_ciphers_are_chosen(void **state)
{
	(void)state;
	assert_int_equal(cipher_choose(3, 3), CIPHER_AES_256_GCM);
	assert_int_equal(cipher_choose(3, 2), CIPHER_CHACHA20_POLY1305);
	assert_int_equal(cipher_choose(1, 2), CIPHER_NONE);
	assert_int_equal(cipher_choose(0, 3), CIPHER_NONE);
	assert_true(cipher_known() & 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_answers),
		cmocka_unit_test(test_blocks_return),
		cmocka_unit_test(test_mutated_blocks_are_refused),
		cmocka_unit_test(test_blocks_are_bound_to_their_place),
		cmocka_unit_test(test_another_session_has_other_keys),
		cmocka_unit_test(test_epochs_and_numbers_only_grow),
		cmocka_unit_test(test_blocks_are_encrypted_anew),
		cmocka_unit_test(test_keys_change),
		cmocka_unit_test(test_exposed_blocks_are_copied),
		cmocka_unit_test(test_ciphers_are_chosen),
	};

	for (unsigned i = 0; i < LANE_SECRET; i++) {
		key.secret[i] = (uint8_t)i;
		key.nonces[0][i] = (uint8_t)(64 + i);
		key.nonces[1][i] = (uint8_t)(128 + i);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
