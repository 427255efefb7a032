/* SPDX-License-Identifier: Apache-2.0 */

/* A peer that sends arbitrary bytes to a lane: it can end the lane, but do nothing worse. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "lane/head.h"
#include "lane/lane.h"
#include "lane/tcp/tcp_impl.h"

enum { SIZE = 4096, DEPTH = 4, SOON_MS = 2000 };

/* A lane whose first wire ends at fd, and that gets no second wire. */
struct victim {
	struct lane *lane;
	int fd, theirs;
	unsigned mends;
	uint32_t depth; /* that the peer's hello states; 0: no hello */
	uint64_t damaged;
	char why[FAIL_TEXT_MAX];
};

static int victim_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct victim *v = ctx;
	struct wire *w;
	int fd = v->theirs;

	v->theirs = -1;
	if (v->mends++ > 0) {
		v->damaged = lane_damaged(l);
		memcpy(v->why, why, strlen(why) + 1);
		return fail_as(OUT_CONNECT, "no second wire");
	}
	if (tcp_wire(l, epoch, fd, &w))
		return -1;
	w->depth = v->depth;
	return lane_attach(l, w, 0);
}

static void victim_open(struct victim *v, enum lane_side side)
{
	struct lane_setup setup = {
		.index = 1,
		.side = side,
		.depth = DEPTH,
		.block_size = SIZE,
		.mend = victim_mend,
		.mend_ctx = v,
	};
	int fds[2];

	*v = (struct victim){0};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	v->fd = fds[0];
	v->theirs = fds[1];
	assert_int_equal(lane_open(&setup, &v->lane), 0);
}

static void victim_close(struct victim *v)
{
	lane_close(v->lane);
	close_fd(v->fd);
	close_fd(v->theirs);
}

static void say(struct victim *v, const void *bytes, size_t len)
{
	assert_int_equal(write_full(v->fd, bytes, len), 0);
}

static void say_block(struct victim *v, struct head h, unsigned len)
{
	uint8_t data[LANE_HEAD + SIZE];
	struct block b = {.data = data + LANE_HEAD, .len = len, .pos = h.pos};

	memset(data, 'x', sizeof data);
	block_seal(&b);
	h.hash[0] = b.hash[0];
	h.hash[1] = b.hash[1];
	head_encode(&h, data);
	say(v, data, LANE_HEAD + len);
}

static const struct head right = {.kind = BLOCK_RECORDS, .lane = 1, .len = 100};

static void hang_up(struct victim *v)
{
	close_fd(v->fd);
	v->fd = -1;
}

static void assert_refused(struct victim *v, enum outcome code, const char *why)
{
	struct block *b;

	assert_int_equal(lane_recv(v->lane, &b), -1);
	if (failed()->code != code || !strstr(failed()->text, why))
		print_error("%d %s\n", failed()->code, failed()->text);
	assert_int_equal(failed()->code, code);
	assert_non_null(strstr(failed()->text, why));
	/* The lane stays ended. */
	assert_int_equal(lane_recv(v->lane, &b), -1);
	assert_int_equal(failed()->code, code);
}

static void test_valid_block_is_accepted(void **arg)
{
	struct victim v;
	struct block *b;

	(void)arg;
	victim_open(&v, LANE_SINK);
	say_block(&v, right, 100);
	assert_int_equal(lane_recv(v.lane, &b), 0);
	assert_int_equal(b->len, 100);
	assert_int_equal(b->data[99], 'x');
	assert_int_equal(lane_put(v.lane, b), 0);
	victim_close(&v);
}

static void test_wrong_head_ends_the_sink(void **arg)
{
	struct {
		struct head head;
		const char *why;
	} cases[] = {
		{{.kind = 1, .lane = 0, .len = 100}, "of lane 0 epoch 0, expected"},
		{{.kind = 1, .lane = 1, .epoch = 1, .len = 100}, "of lane 1 epoch 1, expected"},
		{{.kind = 1, .lane = 1, .number = 1, .len = 100}, "the peer sent block 1"},
		{{.kind = 1, .lane = 1, .number = UINT64_MAX, .len = 100},
		 "the peer sent block 18446744"},
		{{.kind = 9, .lane = 1, .len = 100}, "kind 9"},
		{{.kind = 1, .lane = 1, .len = SIZE + 1}, "exceed the block size"},
		{{.kind = 1, .lane = 1, .len = UINT32_MAX}, "exceed the block size"},
		{{.kind = 1, .lane = 1, .len = 100, .pos = UINT64_MAX}, "position"},
	};

	(void)arg;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct victim v;

		victim_open(&v, LANE_SINK);
		say_block(&v, cases[i].head, 100);
		assert_refused(&v, OUT_PROTOCOL, cases[i].why);
		assert_int_equal(v.mends, 1);
		victim_close(&v);
	}
}

/* A repeated number is not the one expected. */
static void test_repeated_block_ends_the_sink(void **arg)
{
	struct victim v;
	struct block *b;

	(void)arg;
	victim_open(&v, LANE_SINK);
	say_block(&v, right, 100);
	say_block(&v, right, 100);
	assert_int_equal(lane_recv(v.lane, &b), 0);
	assert_int_equal(lane_put(v.lane, b), 0);
	assert_refused(&v, OUT_PROTOCOL, "the peer sent block 0");
	victim_close(&v);
}

static void test_random_bytes_are_damage(void **arg)
{
	uint8_t noise[LANE_HEAD];
	struct victim v;

	(void)arg;
	for (unsigned i = 0; i < sizeof noise; i++)
		noise[i] = (uint8_t)(i * 37);
	victim_open(&v, LANE_SINK);
	say(&v, noise, sizeof noise);
	assert_refused(&v, OUT_CONNECT, "no second wire");
	assert_true(v.damaged == 1);
	assert_string_equal(v.why, "lane 1: block 0 arrived damaged");
	victim_close(&v);
}

/* Truncation after any byte of a block is a broken wire, not damage. */
static void test_truncated_block_is_a_broken_wire(void **arg)
{
	(void)arg;
	for (unsigned len = 0; len < LANE_HEAD + 100; len++) {
		uint8_t data[LANE_HEAD + 100];
		struct victim v, w;

		victim_open(&w, LANE_SINK);
		say_block(&w, right, 100);
		assert_int_equal(read_full(w.theirs, data, sizeof data), sizeof data);
		victim_close(&w);
		victim_open(&v, LANE_SINK);
		say(&v, data, len);
		hang_up(&v);
		assert_refused(&v, OUT_CONNECT, "no second wire");
		assert_true(v.damaged == 0);
		assert_non_null(strstr(v.why, "closed the connection"));
		victim_close(&v);
	}
}

/* A source ignores its credits and keeps sending: the blocks wait in its own socket. */
static void test_flood_of_blocks_waits_in_the_socket(void **arg)
{
	struct victim v;
	struct block *b;

	(void)arg;
	victim_open(&v, LANE_SINK);
	for (unsigned i = 0; i < 3 * DEPTH; i++) {
		struct head h = right;

		h.number = i;
		say_block(&v, h, 100);
	}
	for (unsigned i = 0; i < 3 * DEPTH; i++) {
		assert_int_equal(lane_recv(v.lane, &b), 0);
		assert_int_equal(lane_put(v.lane, b), 0);
	}
	victim_close(&v);
}

static void *abort_soon(void *lane)
{
	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	lane_abort(lane);
	return NULL;
}

static void test_abort_ends_a_wait_within_a_block(void **arg)
{
	uint8_t bytes[LANE_HEAD];
	struct head h = right;
	struct victim v;
	struct block *b;
	pthread_t t;
	uint64_t before;

	(void)arg;
	victim_open(&v, LANE_SINK);
	head_encode(&h, bytes);
	say(&v, bytes, sizeof bytes);
	assert_int_equal(pthread_create(&t, NULL, abort_soon, v.lane), 0);
	before = clock_ms();
	assert_int_equal(lane_recv(v.lane, &b), -1);
	assert_true(clock_ms() - before < 50 + SOON_MS);
	pthread_join(t, NULL);
	victim_close(&v);
}

/* ---- credits ------------------------------------------------------------------------------ */

static void say_credit(struct victim *v, uint32_t epoch, uint64_t stored)
{
	struct credit c = {.epoch = epoch, .stored = stored};
	uint8_t bytes[CREDIT_SIZE];

	credit_encode(&c, bytes);
	say(v, bytes, sizeof bytes);
}

static int send_few(struct victim *v, unsigned blocks)
{
	for (unsigned i = 0; i < blocks; i++) {
		struct block *b;

		if (lane_get(v->lane, &b))
			return -1;
		b->len = 10;
		memset(b->data, 'y', 10);
		if (lane_send(v->lane, b))
			return -1;
	}
	return 0;
}

static void test_wrong_credit_ends_the_source(void **arg)
{
	struct {
		uint32_t epoch;
		uint64_t first, second;
		const char *why;
	} cases[] = {
		{0, 4, 0, "reports 4 blocks as stored, but 3 were sent and 0 stored before"},
		{0, UINT64_MAX, 0, "but 3 were sent"},
		{0, 2, 1, "credit of 1 after 2"},
		{0, 2, 2, "credit of 2 after 2"},
		{1, 3, 0, "epoch 1, not 0"},
		{0, 0, 0, "credit of 0 after 0"},
	};

	(void)arg;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct victim v;

		victim_open(&v, LANE_SOURCE);
		assert_int_equal(send_few(&v, 3), 0);
		say_credit(&v, cases[i].epoch, cases[i].first);
		if (cases[i].second > 0)
			say_credit(&v, cases[i].epoch, cases[i].second);
		assert_int_equal(lane_flush(v.lane), -1);
		assert_non_null(strstr(failed()->text, cases[i].why));
		assert_int_equal(failed()->code, OUT_PROTOCOL);
		assert_int_equal(v.mends, 1);
		victim_close(&v);
	}
}

/* A third block waits for a credit, which covers only blocks that were sent. */
static void test_depth_of_the_wire_bounds_kept_blocks(void **arg)
{
	(void)arg;
	for (unsigned credit = 1; credit <= 3; credit++) {
		struct block *b[3];
		struct victim v;
		int rc;

		victim_open(&v, LANE_SOURCE);
		v.depth = 2;
		assert_int_equal(lane_get(v.lane, &b[0]), 0);
		for (unsigned i = 1; i < 3; i++)
			assert_non_null(b[i] = lane_more(v.lane));
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(lane_send(v.lane, b[i]), 0);
		say_credit(&v, 0, credit);
		rc = lane_send(v.lane, b[2]);
		assert_int_equal(rc, credit <= 2 ? 0 : -1);
		if (rc) {
			assert_int_equal(failed()->code, OUT_PROTOCOL);
			assert_non_null(
				strstr(failed()->text, "reports 3 blocks as stored, but 2 were"));
		}
		victim_close(&v);
	}
}

static void test_random_bytes_end_the_source(void **arg)
{
	struct victim v;

	(void)arg;
	victim_open(&v, LANE_SOURCE);
	say(&v, "HTTP/1.1 400 Bad", CREDIT_SIZE);
	assert_int_equal(send_few(&v, 3), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_string_equal(failed()->text, "credit from the peer: wrong magic number");
	victim_close(&v);
}

static void test_truncated_credit_is_a_broken_wire(void **arg)
{
	struct victim v;

	(void)arg;
	victim_open(&v, LANE_SOURCE);
	say(&v, "SLC\x93", 4);
	assert_int_equal(send_few(&v, 3), 0);
	shutdown(v.fd, SHUT_WR);
	assert_int_equal(lane_flush(v.lane), -1);
	assert_int_equal(failed()->code, OUT_CONNECT);
	assert_int_equal(v.mends, 2);
	victim_close(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid_block_is_accepted),
		cmocka_unit_test(test_wrong_head_ends_the_sink),
		cmocka_unit_test(test_repeated_block_ends_the_sink),
		cmocka_unit_test(test_random_bytes_are_damage),
		cmocka_unit_test(test_truncated_block_is_a_broken_wire),
		cmocka_unit_test(test_flood_of_blocks_waits_in_the_socket),
		cmocka_unit_test(test_abort_ends_a_wait_within_a_block),
		cmocka_unit_test(test_wrong_credit_ends_the_source),
		cmocka_unit_test(test_depth_of_the_wire_bounds_kept_blocks),
		cmocka_unit_test(test_random_bytes_end_the_source),
		cmocka_unit_test(test_truncated_credit_is_a_broken_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
