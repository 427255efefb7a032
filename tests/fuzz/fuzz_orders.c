/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The orders of an end: the frames from its conductor, START to GO, over a channel. The first byte
 * is the size of the packets. The result must lie within the bounds that the copy relies on.
 */
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "cmd/end/guest.h"
#include "cmd/end/refusals.h"
#include "copy/attr/modes.h"
#include "expect.h"
#include "session/channel/framer.h"
#include "session/connect/early.h"

enum { INPUT_MAX = 128 << 10, PACKETS_MAX = 200, SILENCE = 1 << 7 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct framer framer;
static struct orders orders;

/* Opens a channel that delivers these bytes; *peer is its other end. */
static struct channel *channel_saying(const uint8_t *bytes, size_t len, size_t piece, int *peer)
{
	struct channel *ch;
	int fds[2];

	if (piece * PACKETS_MAX < len)
		piece = len / PACKETS_MAX + 1;
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
	while (len > 0) {
		size_t now = len < piece ? len : piece;

		if (send(fds[1], bytes, now, MSG_DONTWAIT) < 0)
			break;
		bytes += now;
		len -= now;
	}
	expect(channel_over_fds(fds[0], fds[0], &ch) == 0);
	*peer = fds[1];
	return ch;
}

/* size: of the input, in which each name has a frame of 8 bytes or more. */
static void expect_bounds(const struct source_opts *from, const struct sink_opts *to, size_t size)
{
	struct modes *m;

	expect(from->count == to->count && from->rules == to->rules);
	for (unsigned i = 0; i < from->count; i++)
		expect(from->names[i] && strlen(from->names[i]) < NAME_MAX_WIRE);
	expect(orders.m.lanes <= LANE_COUNT_MAX && orders.m.depth <= LANE_DEPTH_MAX);
	expect(orders.m.block_size == 0 ||
	       (orders.m.block_size >= LANE_BLOCK_MIN && orders.m.block_size <= LANE_BLOCK_MAX));
	expect(orders_bytes(&orders) <= size);
	expect(from->rules->digest < CONTENT_DIGESTS);
	if (modes_parse(from->rules->chmod, &m) == 0)
		modes_free(m);
	else
		expect(failed()->code == OUT_USAGE);
}

/* What rdcpd makes of a client's wish. */
static void expect_transport(const struct guest *g, enum transport wish)
{
	expect(wish != TRANSPORT_SSH && orders.m.want != TRANSPORT_SSH);
	expect(g->want == TRANSPORT_AUTO ? orders.m.want == wish : orders.m.want == g->want);
	expect(wish == TRANSPORT_AUTO || orders.m.want == wish);
	expect(orders.m.want == TRANSPORT_TCP || orders.m.lanes <= EARLY_LANES);
}

/* What rdcpd lets a client do, if it lets it do anything. */
static void expect_guest(void)
{
	static struct guest_record record;
	static const struct msg_verdict verdict = {.text = "why", .ns = 1};
	struct guest g = {
		.module = "m",
		.may_read = orders.m.lanes % 3 != 1,
		.may_write = orders.m.lanes % 3 != 2,
		.may_delete = orders.m.depth & 1,
		.fsync = orders.m.depth & 2,
		.anonymous = orders.m.depth & 1,
		.idle_s = 5,
		.memory = 1 << 20,
		.want = (enum transport)((orders.m.depth >> 5) % TRANSPORT_SSH),
		.refused = orders.m.depth & 8 ? UINT64_MAX : 0,
		.incoming_chmod = orders.m.depth & 16 ? "go-w" : "",
		.record = orders.m.depth & 4 ? &record : NULL,
	};
	const struct rules *r = &orders.rules;
	const char *path = orders.want_count ? orders.wants[0] : orders.m.target;
	enum transport wish = (enum transport)orders.m.want;

	for (unsigned i = 0; i < 64; i++)
		expect(!refusals_find(UINT64_C(1) << i, &orders) ||
		       refusals_find(UINT64_MAX, &orders));
	guest_record_work(&g, &orders, &verdict);
	expect(record.role <= ROLE_SINK && strlen(record.path) < GUEST_PATH_MAX);
	if (guest_check_list(&g, path) == 0)
		expect(g.may_read && path[0] != '/' && strcmp(path, "..") != 0);

	if (guest_check(&g, &orders)) {
		expect(failed()->code == OUT_USAGE || failed()->code == OUT_FILE ||
		       failed()->code == OUT_TRANSPORT);
		return;
	}
	expect(orders.m.role == ROLE_SINK ? g.may_write : g.may_read);
	expect(orders_have(&orders, START_LISTENS));
	expect_transport(&g, wish);
	expect(!r->xattrs_all);
	expect(orders.m.memory <= g.memory && orders.m.timeout_ms <= g.idle_s * 1000);
	expect(orders.m.role == ROLE_SOURCE || g.may_delete || (!r->delete &&!r->delete_excluded));
	expect(orders.m.role == ROLE_SOURCE || !g.fsync || r->fsync);
	expect(orders.m.role == ROLE_SOURCE || (!r->devices && !r->owner && !r->chown[0]));
	expect(orders.m.target[0] != '/' && orders.m.backup_dir[0] != '/');
	for (unsigned i = 0; orders.m.role == ROLE_SOURCE && i < orders.want_count; i++)
		expect(orders.wants[i][0] != '/' && strcmp(orders.wants[i], "..") != 0);
	g.refusal.code = OUT_NO_SOURCE;
	expect(guest_check(&g, &orders) == -1);
	expect(guest_check_list(&g, "") == -1);
}

/* Reads the orders: 1 if they are complete, or -1. */
static int take_orders(struct channel *ch)
{
	struct frame f;
	int rc = frame_read(ch, &framer, clock_ms() + 1, &f);

	if (rc <= 0 || orders_begin(&orders, &f))
		return -1;
	do {
		rc = frame_read(ch, &framer, clock_ms() + 1, &f);
		rc = rc <= 0 ? -1 : orders_take(&orders, &f);
	} while (rc == 0);
	return rc;
}

/* Writes to a peer that reads nothing, and then to one that has closed. */
static void answer(struct channel *ch, int peer)
{
	static const uint8_t body[FRAME_BODY_MAX + 1];
	int rc = 0;

	expect(frame_write(ch, MSG_RULE, body, sizeof body, clock_ms() + 1) == -1);
	while (rc == 0)
		rc = frame_write(ch, MSG_RULE, body, FRAME_BODY_MAX, clock_ms() + 1);
	expect_failure(OUT_TIMEOUT, OUT_PEER_LOST);
	close(peer);
	expect(frame_write(ch, MSG_GO, NULL, 0, clock_ms() + 1) == -1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct channel *ch;
	int peer;

	if (size < 1 || size > INPUT_MAX)
		return -1;
	framer_init(&framer);
	memset(&orders, 0, sizeof orders);
	ch = channel_saying(data + 1, size - 1, 1 + (data[0] & (SILENCE - 1)) * 8, &peer);
	if (!(data[0] & SILENCE))
		shutdown(peer, SHUT_WR);
	if (take_orders(ch) > 0) {
		struct source_opts from = orders_source_opts(&orders);
		struct sink_opts to = orders_sink_opts(&orders);

		expect_bounds(&from, &to, size);
		expect_guest();
	}
	answer(ch, peer);
	orders_free(&orders);
	framer_wipe(&framer);
	channel_free(ch);
	return 0;
}
