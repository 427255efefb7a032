/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/bridge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/secret.h"
#include "cmd/conductor/bridge_lane.h"
#include "cmd/process/child.h"

enum { LANE_END_MS = 500 };

struct bridge {
	struct bridge_way way;
	struct msg_hello hellos[2];
	bool has_hello[2], has_offer[2];
	uint64_t sessions[2];
	uint8_t secret[LANE_SECRET];
	struct between between;
	struct bridged {
		struct child child;
		bool used, ended;
	} lanes[LANE_COUNT_MAX];
	unsigned count; /* of lanes that were begun */
};

int bridge_open(const struct bridge_way *w, const uint8_t secret[static LANE_SECRET],
		struct bridge **out)
{
	struct bridge *b = calloc(1, sizeof *b);

	if (!b)
		return fail_as(OUT_MEMORY, "set up lanes between two rdcpd: %m");
	secret_guard(b, sizeof *b);
	b->way = *w;
	memcpy(b->secret, secret, sizeof b->secret);
	*out = b;
	return 0;
}

static int begin_lane(struct bridge *b)
{
	struct bridge_lane l = {.way = &b->way, .between = &b->between, .index = b->count};

	if (child_fork(bridge_lane_run, &l, "a lane between two rdcpd", &b->lanes[b->count].child))
		return -1;
	b->count++;
	return 0;
}

/* When HELLO and OFFER of both ends are there. */
static int begin_first_lane(struct bridge *b)
{
	if (!b->has_hello[0] || !b->has_hello[1] || !b->has_offer[0] || !b->has_offer[1])
		return 0;
	/* Both ends report the same failure. */
	if (between_agree(b->hellos, &b->between)) {
		fail_clear();
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		memcpy(b->between.keys[i].secret, b->secret, sizeof b->secret);
		b->between.keys[i].session = b->sessions[i];
	}
	return begin_lane(b);
}

int bridge_take_hello(struct bridge *b, int end, const struct frame *f)
{
	if (b->has_hello[end])
		return 0;
	/* The end that gets it reports what is wrong with it. */
	if (msg_hello_decode(f, &b->hellos[end])) {
		fail_clear();
		return 0;
	}
	b->has_hello[end] = true;
	return begin_first_lane(b);
}

int bridge_take_offer(struct bridge *b, int end, const struct frame *f)
{
	struct msg_offer m;

	if (msg_offer_decode(f, &m))
		return -1;
	if (b->has_offer[end] || m.round != 0)
		return fail_as(OUT_PROTOCOL, "%s sent an unexpected OFFER", b->way.names[end]);
	b->has_offer[end] = true;
	b->sessions[end] = m.session;
	return begin_first_lane(b);
}

unsigned bridge_polls(const struct bridge *b, struct pollfd p[static BRIDGE_POLLS])
{
	for (unsigned i = 0; i < b->count; i++)
		p[i] = (struct pollfd){.fd = b->lanes[i].ended ? -1 : b->lanes[i].child.out,
				       .events = POLLIN};
	return b->count;
}

/* A lane has no process any more. text: its reason; "": it gave none. */
static int fail_lane(struct bridge *b, unsigned lane, const char *text)
{
	struct bridged *l = &b->lanes[lane];
	enum outcome code = l->used ? OUT_PEER_LOST : OUT_CONNECT;
	char how[64] = "closed its output";
	int status;

	l->ended = true;
	if (text[0])
		return fail_as(code, "lane %u between %s and %s: %s", lane, b->way.names[0],
			       b->way.names[1], text);
	if (child_wait(&l->child, &status, clock_ms() + LANE_END_MS))
		child_end_text(status, how, sizeof how);
	return fail_as(code, "lane %u between %s and %s: the process that carries it %s", lane,
		       b->way.names[0], b->way.names[1], how);
}

/* The secrets are in the processes of the lanes now. */
static int begin_other_lanes(struct bridge *b)
{
	while (b->count < b->between.lanes)
		if (begin_lane(b))
			return -1;
	explicit_bzero(b->between.keys, sizeof b->between.keys);
	explicit_bzero(b->secret, sizeof b->secret);
	return 1;
}

/* Handles the output of a lane's process, or its end. */
static int read_lane(struct bridge *b, unsigned lane)
{
	struct bridged *l = &b->lanes[lane];
	char text[2 + FAIL_TEXT_MAX];
	const char *at = text;
	ssize_t n = read(l->child.out, text, sizeof text - 1);
	bool first = false;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n < 0) {
		l->ended = true;
		return fail_as(OUT_SOCKET, "%s: %m", l->child.what);
	}
	text[n > 0 ? n : 0] = '\0';
	if (*at == BRIDGE_USED) {
		first = lane == 0 && !l->used;
		l->used = true;
		at++;
	}
	if (*at == BRIDGE_FAILED)
		return fail_lane(b, lane, at + 1);
	if (n <= 0)
		return fail_lane(b, lane, "");
	return first ? begin_other_lanes(b) : 0;
}

int bridge_handle(struct bridge *b, const struct pollfd *p, unsigned n)
{
	int connected = 0;

	for (unsigned i = 0; i < n; i++) {
		int rc = p[i].revents && p[i].fd >= 0 ? read_lane(b, i) : 0;

		if (rc < 0)
			return rc;
		connected |= rc;
	}
	return connected;
}

void bridge_release(struct bridge *b)
{
	for (unsigned i = 0; i < b->count; i++)
		child_close_in(&b->lanes[i].child);
}

void bridge_close(struct bridge *b)
{
	if (!b)
		return;
	bridge_release(b);
	for (unsigned i = 0; i < b->count; i++)
		child_stop(&b->lanes[i].child);
	explicit_bzero(b, sizeof *b);
	free(b);
}
