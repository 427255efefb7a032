/* SPDX-License-Identifier: Apache-2.0 */

/* A third party's hellos to two ends that both accept. */

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include "base/fail.h"
#include "lane/cipher.h"
#include "session/between.h"
#undef fail
#include <cmocka.h>

static struct between b;

static struct msg_hello make_hello(enum role role)
{
	struct msg_hello m = {
		.version = PROTOCOL_VERSION,
		.role = (uint8_t)role,
		.want = TRANSPORT_TCP,
		.lanes = role == ROLE_SOURCE ? 4 : 3,
		.depth = role == ROLE_SOURCE ? 8 : 16,
		.block_size = 1 << 16,
		.memory = UINT64_MAX,
		.timeout_ms = 15000,
		.host_id = role,
		.encrypt = ENCRYPT_ON,
		.ciphers = cipher_known(),
	};

	memset(m.nonce, role, sizeof m.nonce);
	return m;
}

static int setup(void **state)
{
	struct msg_hello hellos[2] = {make_hello(ROLE_SOURCE), make_hello(ROLE_SINK)};

	(void)state;
	assert_int_equal(between_agree(hellos, &b), 0);
	for (int i = 0; i < 2; i++) {
		memset(b.keys[i].secret, 7, sizeof b.keys[i].secret);
		b.keys[i].session = 100 + (unsigned)i;
	}
	return 0;
}

static void the_terms_are_those_of_the_ends(void **state)
{
	(void)state;
	assert_int_equal(b.lanes, 3);
	assert_int_equal(b.depth, 8);
	assert_int_equal(b.block_size, 1 << 16);
	assert_true(b.seals);
}

static void ends_that_disagree_have_no_lanes(void **state)
{
	struct msg_hello hellos[2] = {make_hello(ROLE_SOURCE), make_hello(ROLE_SINK)};
	struct between none;

	(void)state;
	hellos[1].encrypt = ENCRYPT_OFF;
	assert_int_equal(between_agree(hellos, &none), -1);
	assert_int_equal(failed()->code, OUT_TRANSPORT);
	hellos[1].role = ROLE_SOURCE;
	assert_int_equal(between_agree(hellos, &none), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
}

/* What an accepting end checks (session/connect/porter_lanes.c). */
static void each_end_gets_the_hello_of_the_other(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		enum lane_side to = i == 0 ? LANE_SOURCE : LANE_SINK;
		uint8_t bytes[LANE_HELLO_SIZE];
		struct lane_hello h;

		between_write_hello(&b, to, 2, 5, bytes);
		assert_int_equal(lane_hello_decode(bytes, &h), 0);
		assert_int_equal(lane_hello_verify(&h, &b.keys[i]), 0);
		assert_int_equal(h.from, i == 0 ? LANE_SINK : LANE_SOURCE);
		assert_int_equal(h.accepting, 0);
		assert_int_equal(h.seals, 1);
		assert_int_equal(h.session, 100 + i);
		assert_int_equal(h.lane, 2);
		assert_int_equal(h.epoch, 5);
		assert_int_equal(h.depth, 8);
		assert_int_equal(h.block_size, 1 << 16);
		assert_int_equal(h.ring.at, 0);
	}
}

static struct lane_hello make_answer(void)
{
	return (struct lane_hello){
		.from = LANE_SINK,
		.accepting = 1,
		.seals = 1,
		.session = 101,
		.lane = 2,
		.epoch = 5,
		.depth = 8,
		.block_size = 1 << 16,
	};
}

static int check_answer(struct lane_hello h)
{
	uint8_t bytes[LANE_HELLO_SIZE];

	lane_hello_sign(&h, &b.keys[1]);
	lane_hello_encode(&h, bytes);
	return between_check_hello(&b, LANE_SINK, 2, 5, bytes);
}

static void only_the_right_answer_is_taken(void **state)
{
	struct lane_hello right = make_answer(), h;

	(void)state;
	assert_int_equal(check_answer(right), 0);
	for (int field = 0; field < 7; field++) {
		h = right;
		h.from = field == 0 ? LANE_SOURCE : LANE_SINK;
		h.accepting = field != 1;
		h.session += field == 2;
		h.lane = (uint16_t)(h.lane + (field == 3));
		h.epoch += field == 4;
		h.depth = (uint16_t)(h.depth - (field == 5));
		h.block_size >>= field == 6;
		assert_int_equal(check_answer(h), -1);
		assert_int_equal(failed()->code, OUT_PROTOCOL);
	}
	h = right;
	h.ring = (struct lane_ring){4096, 1};
	assert_int_equal(check_answer(h), -1);
}

static void an_answer_without_the_secret_is_refused(void **state)
{
	struct lane_hello h = make_answer();
	struct lane_key other = b.keys[1];
	uint8_t bytes[LANE_HELLO_SIZE];

	(void)state;
	other.secret[0] ^= 1;
	lane_hello_sign(&h, &other);
	lane_hello_encode(&h, bytes);
	assert_int_equal(between_check_hello(&b, LANE_SINK, 2, 5, bytes), -1);
	assert_int_equal(failed()->code, OUT_AUTH);
}

/* --encrypt=off: no end may demand what was not agreed. */
static void an_unwanted_seal_is_refused(void **state)
{
	struct lane_hello h = make_answer();

	(void)state;
	b.seals = false;
	assert_int_equal(check_answer(h), -1);
	h.seals = 0;
	assert_int_equal(check_answer(h), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_terms_are_those_of_the_ends, setup),
		cmocka_unit_test_setup(ends_that_disagree_have_no_lanes, setup),
		cmocka_unit_test_setup(each_end_gets_the_hello_of_the_other, setup),
		cmocka_unit_test_setup(only_the_right_answer_is_taken, setup),
		cmocka_unit_test_setup(an_answer_without_the_secret_is_refused, setup),
		cmocka_unit_test_setup(an_unwanted_seal_is_refused, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
