/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A peer's whole stream of frames, after authentication, against a session. The session must not
 * crash, hang, or leave anything behind.
 *
 * The first byte of an input selects the kind of session, and whether a valid HELLO comes before
 * the rest, which is the stream. connect() is replaced, because the input contains the addresses.
 */

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/worker.h"
#include "host/host_id.h"
#include "session/session.h"

enum {
	IS_SINK = 1 << 0,
	LISTENS = 1 << 1,
	HAS_CONDUCTOR = 1 << 2,
	WANT_SHIFT = 3, /* two bits of enum transport */
	SAY_HELLO = 1 << 5,
	IS_OVER = 1 << 6, /* the stream comes after the verdict */
	STREAM_MAX = 128 << 10,
	STAY_MS = 3, /* until the peer hangs up */
	READ_MS = 1000, /* limit for reading everything */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Replaces the C library's function. */
int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	(void)fd;
	(void)to;
	(void)len;
	errno = ECONNREFUSED;
	return -1;
}

static void on_fail(void *ctx)
{
	(void)ctx;
}

static int on_frame(void *ctx, const struct frame *f)
{
	(void)ctx;
	(void)f;
	return 0;
}

static size_t hello(uint8_t kind, uint8_t *to, size_t size)
{
	struct msg_hello m = {
		.version = PROTOCOL_VERSION,
		.role = kind & IS_SINK ? ROLE_SOURCE : ROLE_SINK,
		.lanes = 2,
		.depth = 2,
		.block_size = 4096,
		.memory = UINT64_MAX,
		.timeout_ms = 1000,
		.host_id = host_id(),
		.ciphers = 3,
	};
	struct writer w = writer_of(to + FRAME_HEAD, size - FRAME_HEAD);

	msg_hello_encode(&w, &m);
	frame_head_encode(MSG_HELLO, (uint32_t)w.used, to);
	return FRAME_HEAD + w.used;
}

static void *use_lane(void *arg)
{
	struct lane *l = arg;
	struct block *b;

	if (lane_side_of(l) == LANE_SOURCE) {
		while (lane_get(l, &b) == 0 && lane_send(l, b) == 0)
			continue;
	} else {
		while (lane_recv(l, &b) == 0 && lane_put(l, b) == 0)
			continue;
	}
	return NULL;
}

static void use_session(struct session *s, int peer)
{
	struct worker workers[LANE_COUNT_MAX];
	unsigned lanes = session_lanes(s);

	for (unsigned i = 0; i < lanes; i++)
		if (worker_start(&workers[i], "lane", use_lane, session_lane(s, i)) < 0)
			abort();
	poll(NULL, 0, STAY_MS);
	shutdown(peer, SHUT_WR);
	for (unsigned i = 0; i < lanes; i++)
		worker_join(&workers[i]);
}

/* Sends what fits into the socket. */
static void say(int fd, const uint8_t *bytes, size_t len)
{
	(void)!send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Waits until the session has read everything, also on a busy machine. */
static void await_reader(int fd)
{
	int unread = 1;

	for (unsigned i = 0; i < READ_MS && unread > 0; i++) {
		poll(NULL, 0, 1);
		if (ioctl(fd, SIOCOUTQ, &unread) < 0)
			abort();
	}
	poll(NULL, 0, STAY_MS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t kind = size ? data[0] : 0, first[1024];
	struct session_opts o = {
		.role = kind & IS_SINK ? ROLE_SINK : ROLE_SOURCE,
		.want = (enum transport)(kind >> WANT_SHIFT & 3),
		.listens = kind & LISTENS,
		.has_conductor = kind & HAS_CONDUCTOR,
		.lanes = 2,
		.depth = 2,
		.block_size = 4096,
		.timeout_ms = 1000,
		.connect_timeout_ms = 50,
		.host = "near",
		.peer = "far",
		.address = "127.0.0.1",
		.on_frame = on_frame,
		.on_fail = on_fail,
	};
	char host[HOST_MAX];
	struct channel *ch;
	struct session *s;
	int fds[2];

	if (size == 0 || size > STREAM_MAX)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
	    channel_over_fds(fds[0], fds[0], &ch) < 0)
		abort();
	if (kind & SAY_HELLO && write_full(fds[1], first, hello(kind, first, sizeof first)) < 0)
		abort();
	if (!(kind & IS_OVER))
		say(fds[1], data + 1, size - 1);
	if (!(kind & SAY_HELLO))
		shutdown(fds[1], SHUT_WR);
	if (session_open(ch, NULL, 0, &o, host, &s) == 0) {
		if (kind & IS_OVER) {
			session_ended(s);
			say(fds[1], data + 1, size - 1);
			shutdown(fds[1], SHUT_WR);
			await_reader(fds[1]);
		} else {
			use_session(s, fds[1]);
		}
		session_close(s);
	}
	close(fds[1]);
	return 0;
}
