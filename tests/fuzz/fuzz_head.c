/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lanes receive from a peer. The first byte selects a decoder of head.h, whose result must
 * encode to the same bytes, or a whole lane on a socket pair, which receives the rest. A fuzzer
 * does not find hashes, so the target can compute the check and the hash of heads.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <xxhash.h>
#include "base/cursor.h"
#include "base/fail.h"
#include "base/io.h"
#include "expect.h"
#include "lane/cell_hash.h"
#include "lane/head.h"
#include "lane/lane.h"
#include "lane/tcp/tcp_impl.h"

enum target {
	T_HEAD,
	T_CREDIT,
	T_HELLO,
	T_PRIVATE,
	T_SINK,
	T_SINK_CHECKED,
	T_SOURCE,
	T_NOTICE,
	T_REFUSAL,
	T_COUNT
};
enum { SIZE = 4096, DEPTH = 4, FEED_MAX = 64 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- decoders --------------------------------------------------------------------------- */

static void check_heads(uint8_t *bytes)
{
	struct writer w = writer_of(bytes + 56, 8);

	put_u64(&w, XXH3_64bits(bytes, 56));
}

static void expect_refused(void)
{
	expect(failed()->code == OUT_PROTOCOL || failed()->code == OUT_INTEGRITY);
}

static void decode_head(const uint8_t *data)
{
	uint8_t bytes[LANE_HEAD], again[LANE_HEAD];
	struct head h;

	if (head_decode(data, SIZE, &h) == 0)
		expect(h.len <= SIZE);
	memcpy(bytes, data, sizeof bytes);
	check_heads(bytes);
	if (head_decode(bytes, SIZE, &h)) {
		expect_refused();
		return;
	}
	expect(h.len <= SIZE && h.lane < LANE_COUNT_MAX && h.pos + h.len >= h.pos);
	head_encode(&h, again);
	expect(memcmp(bytes, again, sizeof bytes) == 0);
}

static void decode_credit(const uint8_t *data)
{
	uint8_t again[CREDIT_SIZE];
	struct credit c;

	if (credit_decode(data, &c)) {
		expect_refused();
		return;
	}
	credit_encode(&c, again);
	expect(memcmp(data, again, sizeof again) == 0);
}

static void decode_notice(const uint8_t *data)
{
	uint8_t again[NOTICE_SIZE];
	struct notice n;

	if (notice_decode(data, &n)) {
		expect_refused();
		return;
	}
	expect(n.slot < LANE_DEPTH_MAX && n.len >= LANE_HEAD &&
	       n.len <= LANE_HEAD + LANE_BLOCK_MAX);
	notice_encode(&n, again);
	expect(memcmp(data, again, sizeof again) == 0);
}

static void decode_hello(const uint8_t *data)
{
	uint8_t again[LANE_HELLO_SIZE];
	const struct lane_key key = {.secret = {1}};
	struct lane_hello h;

	if (lane_hello_decode(data, &h)) {
		expect_refused();
		return;
	}
	expect(h.depth <= LANE_DEPTH_MAX && h.block_size <= LANE_BLOCK_MAX);
	expect(h.ring.at % LANE_PAGE == 0 && (h.ring.at || !h.ring.key));
	expect(lane_hello_verify(&h, &key) == -1 && failed()->code == OUT_AUTH);
	lane_hello_encode(&h, again);
	expect(memcmp(data, again, sizeof again) == 0);
}

static void decode_private(const uint8_t *data, size_t size)
{
	uint8_t again[LANE_PRIVATE_SIZE];
	struct lane_private p;

	if (lane_private_decode(data, size, &p)) {
		expect_refused();
		return;
	}
	expect(p.depth <= LANE_DEPTH_MAX && p.block_size <= LANE_BLOCK_MAX);
	lane_private_encode(&p, again);
	expect(size >= sizeof again && memcmp(data, again, sizeof again) == 0);
}

static void decode_refusal(const uint8_t *data, size_t size)
{
	uint8_t again[LANE_REFUSAL_SIZE];
	struct lane_refusal f;

	if (lane_refusal_decode(data, size, &f)) {
		expect_refused();
		return;
	}
	lane_refusal_encode(&f, again);
	expect(size >= sizeof again && memcmp(data, again, sizeof again) == 0);
}

/* ---- lanes ------------------------------------------------------------------------------- */

/* Gives a lane one wire, into which its peer has already written everything. */
static int one_wire(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	int *fd = ctx;
	struct wire *w;

	(void)why;
	if (*fd < 0)
		return fail_as(OUT_CONNECT, "no second wire");
	if (tcp_wire(l, epoch, *fd, &w))
		abort();
	*fd = -1;
	return lane_attach(l, w, 0);
}

static struct lane *lane_fed(enum lane_side side, const uint8_t *bytes, size_t len, int *fds)
{
	struct lane_setup setup = {
		.side = side,
		.depth = DEPTH,
		.block_size = SIZE,
		.mend = one_wire,
		.mend_ctx = &fds[0],
	};
	struct lane *l;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) || lane_open(&setup, &l))
		abort();
	if (write_full(fds[1], bytes, len) || shutdown(fds[1], SHUT_WR))
		abort();
	return l;
}

static void feed_sink(const uint8_t *bytes, size_t len)
{
	int fds[2];
	struct lane *l = lane_fed(LANE_SINK, bytes, len, fds);
	uint64_t got = 0;
	struct block *b;

	while (lane_recv(l, &b) == 0) {
		expect(b->len <= SIZE && b->number == got++);
		expect(b->kind == BLOCK_RECORDS || b->kind == BLOCK_EXTENT);
		if (lane_put(l, b))
			break;
	}
	expect(failed()->code == OUT_PROTOCOL || failed()->code == OUT_CONNECT);
	lane_close(l);
	close_fd(fds[0]);
	close_fd(fds[1]);
}

/* Feeds blocks. Each whole head among them gets its check and, if its data is complete, its hash.
 */
static void feed_sink_checked(const uint8_t *data, size_t size)
{
	static uint8_t bytes[FEED_MAX];
	size_t at = 0;

	memcpy(bytes, data, size);
	while (size - at >= LANE_HEAD) {
		struct reader r = reader_of(bytes + at, LANE_HEAD);
		uint32_t len;
		uint64_t pos;

		take_view(&r, 12);
		len = take_u32(&r);
		take_u64(&r);
		pos = take_u64(&r);
		if (len > size - at - LANE_HEAD)
			len = (uint32_t)(size - at - LANE_HEAD);
		else {
			struct writer w = writer_of(bytes + at + 40, 16);
			uint64_t hash[2];

			cell_hash_of(pos, bytes + at + LANE_HEAD, len, hash);
			put_u64(&w, hash[0]);
			put_u64(&w, hash[1]);
		}
		check_heads(bytes + at);
		at += LANE_HEAD + len;
	}
	feed_sink(bytes, size);
}

static void feed_source(const uint8_t *bytes, size_t len)
{
	int fds[2];
	struct lane *l = lane_fed(LANE_SOURCE, bytes, len, fds);
	uint64_t sent = 0;
	struct block *b;

	while (lane_get(l, &b) == 0) {
		expect(lane_stored(l) <= sent);
		b->len = 1;
		if (lane_send(l, b))
			break;
		sent++;
	}
	expect(failed()->code == OUT_PROTOCOL || failed()->code == OUT_CONNECT);
	lane_close(l);
	close_fd(fds[0]);
	close_fd(fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t least[T_COUNT] = {
		[T_HEAD] = LANE_HEAD,
		[T_CREDIT] = CREDIT_SIZE,
		[T_HELLO] = LANE_HELLO_SIZE,
		[T_NOTICE] = NOTICE_SIZE,
	};
	enum target t;

	if (size < 1 || size > FEED_MAX)
		return 0;
	t = data[0] % T_COUNT;
	data++;
	size--;
	if (size < least[t])
		return 0;
	switch (t) {
	case T_HEAD:
		decode_head(data);
		break;
	case T_CREDIT:
		decode_credit(data);
		break;
	case T_HELLO:
		decode_hello(data);
		break;
	case T_NOTICE:
		decode_notice(data);
		break;
	case T_PRIVATE:
		decode_private(data, size);
		break;
	case T_REFUSAL:
		decode_refusal(data, size);
		break;
	case T_SINK:
		feed_sink(data, size);
		break;
	case T_SINK_CHECKED:
		feed_sink_checked(data, size);
		break;
	case T_SOURCE:
		feed_source(data, size);
		break;
	case T_COUNT:
		break;
	}
	return 0;
}
