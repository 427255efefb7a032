/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sources that write wrong data into the sink's memory, at wrong places or at wrong times, on the
 * adapter that SLUICE_TRANSPORT names.
 */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/clock.h"
#include "lane/cipher.h"
#include "lane/seal.h"
#include "lane/verbs/verbs_impl.h"
#include "verbs_door.h"

enum { LIMIT_MS = 30000, SKIPPED = 77, DEPTH = 4, SIZE = 16384, LEN = 1000 };

/* ---- a source that the test controls, and a sink --------------------------------------- */

struct scene {
	struct door door;
	struct lane *source, *sink;
	struct verbs *v; /* the source's wire, or NULL: */
	struct cipher *cipher; /* of the source, or NULL */
	struct failure refused;
	unsigned said;

	/* the state of the sink, a thread at far */
	_Atomic unsigned came;
	const struct block *held; /* the last one received, not put back before go_on is as large */
	_Atomic unsigned go_on;
	struct failure end;
	pthread_t thread;
};

static int take_once(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct scene *s = ctx;
	struct wire *w;

	if (epoch > 0)
		return fail_as(OUT_PEER_LOST, "not mended: %s", why);
	if (door_take(&s->door, l, epoch, &door_key, clock_ms() + LIMIT_MS, &w))
		return -1;
	return lane_attach(l, w, 0);
}

static void *sink_thread(void *arg)
{
	struct scene *s = arg;
	struct block *b;

	host_enter(&far);
	while (!lane_recv(s->sink, &b)) {
		s->held = b;
		atomic_fetch_add(&s->came, 1);
		while (atomic_load(&s->go_on) < atomic_load(&s->came) && !lane_aborted(s->sink))
			sleep_ms(1);
		if (lane_put(s->sink, b))
			break;
	}
	s->end = *failed();
	return NULL;
}

struct dialing {
	struct scene *scene;
	uint64_t deadline_ms;
	struct wire *wire;
	int rc;
	struct failure why;
};

static void *dial_there(void *arg)
{
	struct dialing *d = arg;

	d->rc = door_dial(&d->scene->door, d->scene->source, 0, &door_key, d->deadline_ms,
			  &d->wire);
	d->why = *failed();
	return NULL;
}

static void scene_open(struct scene *s, enum rdma_op source_op)
{
	struct dialing d = {.scene = s, .deadline_ms = clock_ms() + LIMIT_MS};
	enum rdma_op op = door_op;

	*s = (struct scene){.v = NULL};
	assert_int_equal(door_open(&s->door, NULL), 0);
	s->sink = door_lane(LANE_SINK, DEPTH, SIZE, take_once, s);
	door_op = source_op;
	s->source = door_lane(LANE_SOURCE, DEPTH, SIZE, door_never, NULL);
	door_op = op;
	assert_non_null(s->sink);
	assert_non_null(s->source);
	if (door_cipher) {
		assert_int_equal(cipher_open((enum cipher_kind)door_cipher, &door_key, 0,
					     CIPHER_REKEY, &s->cipher),
				 0);
		assert_int_equal(cipher_begin(s->cipher, 0), 0);
	}
	assert_int_equal(pthread_create(&s->thread, NULL, sink_thread, s), 0);
	host_call(&near, dial_there, &d);
	if (d.rc)
		s->refused = d.why;
	else
		s->v = (struct verbs *)d.wire;
}

/* Ends the sink too, unless it has ended. */
static void scene_close(struct scene *s, bool abort)
{
	if (abort)
		lane_abort(s->sink);
	pthread_join(s->thread, NULL);
	if (s->v)
		s->v->wire.ops->close(&s->v->wire);
	lane_close(s->source);
	lane_close(s->sink);
	door_close(&s->door);
	cipher_close(s->cipher);
}

static void assert_sink_ends(struct scene *s, enum outcome code, const char *text)
{
	scene_close(s, false);
	if (s->end.code != code || !strstr(s->end.text, text))
		print_error("%d %s\n", s->end.code, s->end.text);
	assert_int_equal(s->end.code, code);
	assert_non_null(strstr(s->end.text, text));
}

/* ---- the actions of the source -------------------------------------------------------- */

/* A valid block with this number, in our memory of its slot; then the head's len is changed. */
static struct block *make_block(struct scene *s, unsigned number, enum block_kind kind)
{
	struct block *b = &s->v->pool->blocks[number % DEPTH];

	b->number = number;
	b->kind = (uint8_t)kind;
	b->len = LEN;
	memset(b->data, 'a' + (int)number, LEN);
	b->encrypted = false;
	if (s->cipher) {
		assert_int_equal(seal_encrypt(b, s->cipher, 0, 0, NULL), 0);
		return b;
	}
	block_seal(b);
	seal_head(b, 0, 0);
	return b;
}

/* Write len bytes, from the head of that block on, to offset `to' of the sink's ring. */
static void write_raw(struct scene *s, const struct block *b, uint64_t to, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(b->data - LANE_HEAD),
			      .length = len,
			      .lkey = s->v->pool_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = work_id(WORK_WRITE_BLOCK, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = s->v->peer_ring.at + to, .rkey = s->v->peer_ring.key},
	};

	assert_int_equal(verbs_post_sends(s->v, &wr), 0);
}

static uint64_t slot_at(unsigned slot)
{
	return (uint64_t)slot * (SIZE + LANE_PAGE) + LANE_PAGE - LANE_HEAD;
}

static void send_raw(struct scene *s, const void *bytes, uint32_t len)
{
	uint8_t *at = verbs_notice_at(s->v, s->said++ % DEPTH);
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = len, .lkey = s->v->ring_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = work_id(WORK_SEND_BLOCK, 0),
				 .sg_list = &sge,
				 .num_sge = len > 0,
				 .opcode = IBV_WR_SEND};

	memcpy(at, bytes, len);
	assert_int_equal(verbs_post_sends(s->v, &wr), 0);
}

/* Announce that this many bytes were written to a slot; with an immediate they are, to slot 0. */
static void tell(struct scene *s, uint32_t slot, uint32_t len, uint32_t epoch)
{
	struct notice n = {.epoch = epoch, .slot = slot, .len = len};
	uint8_t bytes[NOTICE_SIZE];
	struct ibv_sge sge = {.addr = (uintptr_t)(s->v->pool->blocks[0].data - LANE_HEAD),
			      .length = len,
			      .lkey = s->v->pool_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = work_id(WORK_SEND_BLOCK, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(slot),
		.wr.rdma = {.remote_addr = s->v->peer_ring.at + slot_at(0),
			    .rkey = s->v->peer_ring.key},
	};

	if (door_op == RDMA_OP_WRITE_SEND) {
		notice_encode(&n, bytes);
		send_raw(s, bytes, sizeof bytes);
	} else {
		assert_int_equal(verbs_post_sends(s->v, &wr), 0);
	}
}

/* Write and announce a valid block 0. */
static void send_first(struct scene *s, enum block_kind kind)
{
	const struct block *b = make_block(s, 0, kind);

	if (door_op == RDMA_OP_WRITE_SEND)
		write_raw(s, b, slot_at(0), LANE_HEAD + LEN);
	tell(s, 0, LANE_HEAD + LEN, 0);
}

static void await_first(struct scene *s)
{
	if (!wait_count(&s->came, 1, LIMIT_MS))
		abort();
}

/* ---- tests ----------------------------------------------------------------------------- */

static void test_wrong_slot_ends_the_sink(void **state)
{
	uint32_t slots[] = {1, DEPTH - 1, DEPTH, LANE_DEPTH_MAX - 1, UINT32_MAX};
	struct scene s;

	(void)state;
	for (unsigned i = 0; i < sizeof slots / sizeof *slots; i++) {
		scene_open(&s, door_op);
		make_block(&s, 0, BLOCK_EXTENT);
		tell(&s, slots[i], LANE_HEAD + LEN, 0);
		assert_sink_ends(&s, OUT_PROTOCOL, "slot");
		assert_int_equal(s.came, 0);
	}
}

static void test_wrong_length_ends_the_sink(void **state)
{
	uint32_t lens[] = {LANE_HEAD - 1, LANE_HEAD + SIZE + 1, LANE_HEAD + SIZE + LANE_PAGE};
	struct scene s;

	(void)state;
	for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
		scene_open(&s, door_op);
		make_block(&s, 0, BLOCK_EXTENT);
		tell(&s, 0, lens[i], 0);
		assert_sink_ends(&s, OUT_PROTOCOL, "bytes");
		assert_int_equal(s.came, 0);
	}
	/* Not the length in the head. */
	scene_open(&s, door_op);
	write_raw(&s, make_block(&s, 0, BLOCK_EXTENT), slot_at(0), LANE_HEAD + LEN);
	tell(&s, 0, LANE_HEAD + LEN - 1, 0);
	assert_sink_ends(&s, OUT_PROTOCOL, "with 999 bytes, not 1000");
}

/* Announced but never written: the slot is empty or holds the previous block. */
static void test_announced_block_that_was_not_written_is_refused(void **state)
{
	struct scene s;

	(void)state;
	if (door_op != RDMA_OP_WRITE_SEND)
		skip();
	scene_open(&s, door_op);
	tell(&s, 0, LANE_HEAD + LEN, 0);
	assert_sink_ends(&s, OUT_PEER_LOST, "block 0 arrived damaged");

	scene_open(&s, door_op);
	atomic_store(&s.go_on, UINT32_MAX);
	for (unsigned i = 0; i < DEPTH; i++) {
		write_raw(&s, make_block(&s, i, BLOCK_EXTENT), slot_at(i), LANE_HEAD + LEN);
		tell(&s, i, LANE_HEAD + LEN, 0);
	}
	if (!wait_count(&s.came, DEPTH, LIMIT_MS))
		abort();
	while (s.v->stored < DEPTH) {
		s.v->block_sent = true;
		s.v->next_block = DEPTH;
		assert_int_equal(verbs_progress(s.v, clock_ms() + LIMIT_MS), 0);
	}
	tell(&s, 0, LANE_HEAD + LEN, 0);
	assert_sink_ends(&s, OUT_PROTOCOL,
			 "the peer sent block 0 of lane 0 epoch 0, expected block 4");
}

static void test_unagreed_operation_is_refused(void **state)
{
	bool notices = door_op == RDMA_OP_WRITE_SEND;
	struct scene s;

	(void)state;
	scene_open(&s, door_op);
	send_raw(&s, "", 0);
	/* Nobody sends an empty notice: only an adapter makes one up. */
	assert_sink_ends(&s, notices ? OUT_PEER_LOST : OUT_PROTOCOL,
			 notices ? "an empty message" : "operation");
	if (!notices)
		return;
	scene_open(&s, door_op);
	send_raw(&s, "SLX\x93 is no notice", NOTICE_SIZE);
	assert_sink_ends(&s, OUT_PROTOCOL, "wrong magic number");
	scene_open(&s, door_op);
	tell(&s, 0, LANE_HEAD, 1);
	assert_sink_ends(&s, OUT_PROTOCOL, "a notice of epoch 1");
}

/* Only the ring is writable: the adapter refuses other addresses, and that breaks the wire. */
static void test_write_beyond_the_ring_breaks_the_wire(void **state)
{
	const uint64_t end = (uint64_t)DEPTH * (SIZE + LANE_PAGE);
	uint64_t to[] = {end, end - 8, (uint64_t)-8, (uint64_t)-LANE_PAGE};
	struct scene s;

	(void)state;
	for (unsigned i = 0; i < sizeof to / sizeof *to; i++) {
		scene_open(&s, door_op);
		write_raw(&s, make_block(&s, 0, BLOCK_EXTENT), to[i], 16);
		while (!verbs_progress(s.v, clock_ms() + LIMIT_MS))
			;
		s.v->wire.ops->close(&s.v->wire);
		s.v = NULL;
		assert_sink_ends(&s, OUT_PEER_LOST, "not mended");
	}
	scene_open(&s, door_op);
	s.v->peer_ring.key ^= 0x5a;
	write_raw(&s, make_block(&s, 0, BLOCK_EXTENT), slot_at(0), 16);
	while (!verbs_progress(s.v, clock_ms() + LIMIT_MS))
		;
	s.v->wire.ops->close(&s.v->wire);
	s.v = NULL;
	assert_sink_ends(&s, OUT_PEER_LOST, "not mended");
}

/*
 * What arrives does not fit into the receive that is posted, and that breaks the wire while the
 * sink holds a block. The other end notices first and says that the connection was closed.
 */
static void test_the_completion_that_broke_the_wire_is_its_reason(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s, door_op);
	send_first(&s, BLOCK_EXTENT);
	await_first(&s);
	send_raw(&s, "longer than any notice is", NOTICE_SIZE + 8);
	while (!verbs_progress(s.v, clock_ms() + LIMIT_MS))
		;
	lane_break(s.sink, 0, "the connection was closed");
	atomic_store(&s.go_on, UINT32_MAX);
	/* A local length error, or, on rxe for a receive that takes an immediate, a local QP
	 * operation error. */
	assert_sink_ends(&s, OUT_PEER_LOST, ": local ");
}

static bool filled_with(const volatile uint8_t *at, uint8_t byte)
{
	for (unsigned i = 0; i < LEN; i++) {
		if (at[i] != byte)
			return false;
	}
	return true;
}

/*
 * The source overwrites a block while the sink holds it and has granted no credit for its slot:
 * records and their head are copied and safe; an extent is not, which shows that the write arrived.
 * Of encrypted blocks both are.
 */
static void overwrite(enum block_kind kind)
{
	struct scene s;
	const uint8_t *slot;
	uint64_t end = clock_ms() + LIMIT_MS;
	struct block *b;

	scene_open(&s, door_op);
	send_first(&s, kind);
	await_first(&s);
	slot = lane_pool(s.sink)->blocks[0].data;
	assert_true(!s.cipher || !filled_with(slot, 'a')); /* decrypted elsewhere */
	assert_int_equal(s.held->len, LEN);
	assert_true(filled_with(s.held->data, 'a'));
	b = &s.v->pool->blocks[1];
	memset(b->data - LANE_HEAD, 'x', LANE_HEAD + LEN);
	write_raw(&s, b, slot_at(0), LANE_HEAD + LEN);
	while (!filled_with(slot, 'x')) {
		if (clock_ms() > end)
			abort();
		sleep_ms(1);
	}
	assert_true(filled_with(s.held->data, kind == BLOCK_RECORDS || s.cipher ? 'a' : 'x'));
	assert_int_equal(s.held->len, LEN);
	assert_int_equal(s.held->kind, kind);
	assert_int_equal(s.held->number, 0);
	scene_close(&s, true);
}

static void test_records_are_safe_from_overwrites_while_in_use(void **state)
{
	(void)state;
	overwrite(BLOCK_RECORDS);
	overwrite(BLOCK_EXTENT);
}

static void test_encrypted_blocks_are_safe_from_overwrites(void **state)
{
	(void)state;
	for (door_cipher = CIPHER_AES_256_GCM; door_cipher <= CIPHER_CHACHA20_POLY1305;
	     door_cipher++) {
		overwrite(BLOCK_RECORDS);
		overwrite(BLOCK_EXTENT);
	}
	door_cipher = CIPHER_NONE;
}

/* A valid head and data that its writer could make without the key. */
static void test_clear_block_on_an_encrypted_wire_is_damage(void **state)
{
	struct cipher *own;
	struct scene s;

	(void)state;
	door_cipher = CIPHER_AES_256_GCM;
	scene_open(&s, door_op);
	own = s.cipher;
	s.cipher = NULL;
	send_first(&s, BLOCK_EXTENT);
	s.cipher = own;
	assert_sink_ends(&s, OUT_PEER_LOST, "block 0 arrived damaged");
	assert_int_equal(s.came, 0);
	door_cipher = CIPHER_NONE;
}

/* Ends that do not agree on the operation find out before anything is written. */
static void test_ends_with_different_operations_fail(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s, RDMA_OP_SEND);
	assert_null(s.v);
	assert_int_equal(s.refused.code, OUT_PROTOCOL);
	assert_non_null(strstr(s.refused.text, "unexpected ring to write to"));
	scene_close(&s, true);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_slot_ends_the_sink),
		cmocka_unit_test(test_wrong_length_ends_the_sink),
		cmocka_unit_test(test_announced_block_that_was_not_written_is_refused),
		cmocka_unit_test(test_unagreed_operation_is_refused),
		cmocka_unit_test(test_write_beyond_the_ring_breaks_the_wire),
		cmocka_unit_test(test_the_completion_that_broke_the_wire_is_its_reason),
		cmocka_unit_test(test_records_are_safe_from_overwrites_while_in_use),
		cmocka_unit_test(test_encrypted_blocks_are_safe_from_overwrites),
		cmocka_unit_test(test_clear_block_on_an_encrypted_wire_is_damage),
		cmocka_unit_test(test_ends_with_different_operations_fail),
	};
	int failures = 0;

	signal(SIGPIPE, SIG_IGN); /* siw increments it: see lane.h */
	if (!hosts_find()) {
		fputs("no RDMA adapter is named in SLUICE_TRANSPORT\n", stderr);
		return SKIPPED;
	}
	door_op = RDMA_OP_WRITE_SEND;
	failures += cmocka_run_group_tests_name("written, then told of", tests, NULL, NULL);
	if (door_iwarp)
		return failures;
	door_op = RDMA_OP_WRITE_IMM;
	return failures +
	       cmocka_run_group_tests_name("written with an immediate", tests, NULL, NULL);
}
