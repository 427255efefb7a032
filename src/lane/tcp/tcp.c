/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/tcp/tcp_connect.h"
#include "lane/tcp/tcp_impl.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/backoff.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "lane/connect.h"
#include "lane/head.h"
#include "lane/pool.h"
#include "lane/tcp/tcp_zerocopy.h"

enum {
	TICK_MS = 10, /* of the kernel's clock, at most */
	CREDITS_AT_ONCE = 64,
	/* Within one host there is no latency to hide, and the data in flight should still be in
	 * a cache when it is read: at the usual block size, one block that is filled and one that
	 * is read. With twice as much, one lane was slower by a quarter (lane_bench: 3.3 instead of
	 * 4.3 GB/s). */
	HOST_WINDOW = 512 << 10,
};

struct tcp {
	struct wire wire;
	int fd;
	int wake; /* eventfd: readable once broken */
	atomic_bool broken;
	struct lane *lane;
	struct pool *pool;
	uint32_t epoch;
	int timeout_ms;

	/* source */
	struct zerocopy zerocopy;
	uint64_t stored; /* the last credit that arrived */
	uint8_t credits[CREDITS_AT_ONCE * CREDIT_SIZE]; /* received and not decoded yet */
	size_t credits_len;

	/* sink: recvmsg() reads the head of the next block together with the end of this one */
	uint8_t head[LANE_HEAD];
	size_t head_len;
	struct block *incoming; /* its head has arrived; NULL: none */
	size_t incoming_len; /* bytes of its data that have arrived */
	uint64_t grant_due; /* blocks to credit to the source */
	uint64_t grant_sent; /* the last credit message that was begun */
	uint8_t grant[CREDIT_SIZE]; /* the credit message that is being sent */
	size_t grant_left; /* bytes at its end that are not sent yet */
};

static int fail_connection(struct tcp *t, const char *what)
{
	if (atomic_load(&t->broken))
		return fail_as(OUT_PEER_LOST, "%s: the connection was abandoned", t->wire.name);
	if (errno == 0)
		return fail_as(OUT_PEER_LOST, "%s: the peer closed the connection", t->wire.name);
	return fail_as(OUT_PEER_LOST, "%s on %s: %m", what, t->wire.name);
}

/*
 * What the looks at a connection have seen while a thread waits for it. The pauses between
 * retransmissions may be longer than the timeout, if a live host drops what it has no memory for;
 * from Linux 6.6 on it answers each of them. So an old acknowledgement alone shows nothing: a later
 * transmission must have had no answer since the look before, or be overdue since then, which it is
 * on a host that has no route.
 */
struct answer_watch {
	uint64_t since_ms; /* the wait began */
	int64_t asked_ms; /* of a transmission without an answer; 0: none */
	bool overdue;
};

/* Returns true if the host has not answered since the look before, and should have. */
static bool notice_silence(struct answer_watch *a, const struct tcp_info *info)
{
	int64_t now_ms = (int64_t)clock_ms();
	int64_t answered_ms = now_ms - info->tcpi_last_ack_recv + TICK_MS;
	int64_t sent_ms = now_ms - info->tcpi_last_data_sent;
	/* The kernel's timers may be an eighth late. */
	uint32_t late_ms = info->tcpi_rto / 1000 / 4 * 5;
	bool unanswered = a->asked_ms > answered_ms && info->tcpi_unacked > 0;
	bool was_overdue = a->overdue;

	if (!unanswered)
		a->asked_ms = info->tcpi_unacked > 0 && sent_ms > answered_ms ? sent_ms : 0;
	a->overdue = info->tcpi_unacked > 0 && info->tcpi_last_data_sent > late_ms &&
		     info->tcpi_last_ack_recv > late_ms;
	/* A live host answers each probe of a closed window. */
	return unanswered || (was_overdue && a->overdue) || info->tcpi_probes > 1;
}

/*
 * Whether the peer's host has sent nothing for the timeout although it had to. TCP_USER_TIMEOUT
 * would make the kernel check that, but it also ends a connection whose live peer keeps its window
 * closed, as a sink with an idle consumer does.
 */
static bool is_silent(const struct tcp *t, struct answer_watch *a)
{
	struct tcp_info info;
	socklen_t len = sizeof info;

	if (getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return false;
	return notice_silence(a, &info) && info.tcpi_last_ack_recv >= (uint32_t)t->timeout_ms &&
	       clock_ms() - a->since_ms >= (uint64_t)t->timeout_ms;
}

/* Waits until fd has one of events (in *got, with POLLERR and POLLHUP), or the wire is broken. */
static int tcp_wait(struct tcp *t, short events, short *got)
{
	struct pollfd p[2] = {
		{.fd = t->fd, .events = events},
		{.fd = t->wake, .events = POLLIN},
	};
	int slice = t->timeout_ms / 4 + 1;
	struct answer_watch watch = {.since_ms = clock_ms()};

	for (;;) {
		int n = poll(p, 2, slice);

		errno = n < 0 ? errno : 0;
		if (atomic_load(&t->broken) || (n < 0 && errno != EINTR))
			return fail_connection(t, "wait");
		/* Notifications set POLLERR, too. A real error stays set after they are read. */
		if (n > 0 && (p[0].revents & POLLERR) && zerocopy_reap(&t->zerocopy, t->fd) > 0)
			continue;
		if (n > 0 && p[0].revents) {
			*got = p[0].revents;
			return 0;
		}
		if (n == 0 && is_silent(t, &watch))
			return fail_as(OUT_PEER_LOST,
				       "%s: the peer's host has not answered for %d s",
				       t->wire.name, t->timeout_ms / 1000);
	}
}

/* ---- source ------------------------------------------------------------------------------ */

static int tcp_send(struct wire *w, struct block *b)
{
	struct tcp *t = (struct tcp *)w;
	const uint8_t *at = b->data - LANE_HEAD;
	size_t left = LANE_HEAD + b->len;
	short got = 0;

	while (left > 0) {
		ssize_t n;

		errno = 0;
		if (atomic_load_explicit(&t->broken, memory_order_relaxed))
			return fail_connection(t, "send");
		/* The memory of a block must not be clear text again while a connection that is
		 * closed may still send from it. */
		n = t->wire.sealed ? send(t->fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
				   : zerocopy_send(&t->zerocopy, t->fd, at, left);
		if (n > 0) {
			at += n;
			left -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		errno = errno == EAGAIN && (got & (POLLRDHUP | POLLHUP)) ? 0 : errno;
		if (errno != EAGAIN)
			return fail_connection(t, "send");
		/* Credits need not be processed here: the sink never waits for that. */
		if (tcp_wait(t, POLLOUT | POLLRDHUP, &got))
			return -1;
	}
	return 0;
}

static int parse_credits(struct tcp *t)
{
	size_t at = 0;

	for (; t->credits_len - at >= CREDIT_SIZE; at += CREDIT_SIZE) {
		struct credit c;

		if (credit_decode(t->credits + at, &c))
			return -1;
		if (c.epoch != t->epoch)
			return fail_as(OUT_PROTOCOL, "%s: credit of epoch %u, not %u", t->wire.name,
				       c.epoch, t->epoch);
		if (c.stored <= t->stored)
			return fail_as(OUT_PROTOCOL, "%s: credit of %llu after %llu", t->wire.name,
				       (unsigned long long)c.stored, (unsigned long long)t->stored);
		t->stored = c.stored;
	}
	t->credits_len -= at;
	memmove(t->credits, t->credits + at, t->credits_len);
	return 0;
}

static int tcp_credit(struct wire *w, uint64_t least, uint64_t *stored)
{
	struct tcp *t = (struct tcp *)w;
	short got;

	do {
		ssize_t n;

		errno = 0;
		if (atomic_load_explicit(&t->broken, memory_order_relaxed))
			return fail_connection(t, "receive");
		n = recv(t->fd, t->credits + t->credits_len, sizeof t->credits - t->credits_len,
			 MSG_DONTWAIT);
		if (n > 0) {
			t->credits_len += (size_t)n;
			lane_heard_wire(t->lane);
			if (parse_credits(t))
				return -1;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			return fail_connection(t, "receive");
		} else if (errno == EAGAIN && t->stored < least && tcp_wait(t, POLLIN, &got)) {
			return -1;
		}
	} while (t->stored < least);
	*stored = t->stored;
	return 0;
}

/* ---- sink -------------------------------------------------------------------------------- */

/* Sends the credit that is due, as far as the socket has room. Never waits. */
static int push_grants(struct tcp *t)
{
	while (t->grant_left > 0 || t->grant_sent < t->grant_due) {
		ssize_t n;

		if (t->grant_left == 0) {
			struct credit c = {.epoch = t->epoch, .stored = t->grant_due};

			credit_encode(&c, t->grant);
			t->grant_left = CREDIT_SIZE;
			t->grant_sent = t->grant_due;
		}
		n = send(t->fd, t->grant + CREDIT_SIZE - t->grant_left, t->grant_left,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			t->grant_left -= (size_t)n;
		else if (errno == EAGAIN)
			return 0;
		else if (errno != EINTR)
			return fail_connection(t, "send");
	}
	return 0;
}

static int tcp_grant(struct wire *w, uint64_t stored)
{
	struct tcp *t = (struct tcp *)w;

	t->grant_due = stored;
	return push_grants(t);
}

static int tcp_post(struct wire *w, struct block *b)
{
	struct tcp *t = (struct tcp *)w;

	pool_give(t->pool, b);
	return 0;
}

/* Reads what has arrived, up to the end of the next head. Returns 1, or 0 if there is nothing now.
 */
static int read_available(struct tcp *t)
{
	struct iovec parts[2];
	struct msghdr m = {.msg_iov = parts};
	size_t data = t->incoming ? t->incoming->len - t->incoming_len : 0;
	ssize_t n;

	if (data > 0)
		parts[m.msg_iovlen++] =
			(struct iovec){.iov_base = t->incoming->data + t->incoming_len,
				       .iov_len = data};
	parts[m.msg_iovlen++] = (struct iovec){.iov_base = t->head + t->head_len,
					       .iov_len = LANE_HEAD - t->head_len};
	errno = 0;
	n = recvmsg(t->fd, &m, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return fail_connection(t, "receive");
	atomic_fetch_add_explicit(&t->wire.received, (uint64_t)n, memory_order_relaxed);
	lane_heard_wire(t->lane);
	if ((size_t)n < data)
		data = (size_t)n;
	t->incoming_len += data;
	t->head_len += (size_t)n - data;
	return 1;
}

/* The next block's head has arrived: takes a block for its data. */
static int begin_block(struct tcp *t)
{
	struct block *b;
	struct head h;

	if (head_decode(t->head, t->pool->size, &h))
		return -1;
	b = pool_take(t->pool);
	if (!b)
		return fail_as(OUT_PROTOCOL, "%s: received more blocks than the lane has",
			       t->wire.name);
	memcpy(b->data - LANE_HEAD, t->head, LANE_HEAD);
	b->len = h.len;
	t->incoming = b;
	t->incoming_len = 0;
	t->head_len = 0;
	return 0;
}

static int tcp_recv(struct wire *w, bool wait, struct block **out)
{
	struct tcp *t = (struct tcp *)w;
	short got;
	int n;

	*out = NULL;
	for (;;) {
		if (atomic_load_explicit(&t->broken, memory_order_relaxed))
			return fail_connection(t, "receive");
		if (!t->incoming && t->head_len == LANE_HEAD && begin_block(t))
			return -1;
		if (t->incoming && t->incoming_len == t->incoming->len)
			break;
		n = read_available(t);
		if (n < 0)
			return -1;
		if (n > 0)
			continue;
		if (!wait && !t->incoming && t->head_len == 0)
			return 0;
		if (tcp_wait(t, t->grant_left > 0 ? POLLIN | POLLOUT : POLLIN, &got) ||
		    push_grants(t))
			return -1;
	}
	*out = t->incoming;
	t->incoming = NULL;
	return 0;
}

/* ---- both -------------------------------------------------------------------------------- */

static void tcp_break(struct wire *w)
{
	struct tcp *t = (struct tcp *)w;

	atomic_store(&t->broken, true);
	raise_event(t->wake);
}

static void tcp_update_rtt(struct wire *w)
{
	struct tcp *t = (struct tcp *)w;
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	    info.tcpi_min_rtt != UINT32_MAX)
		w->rtt_us = info.tcpi_min_rtt;
}

static void tcp_close(struct wire *w)
{
	struct tcp *t = (struct tcp *)w;

	close_fd(t->fd);
	close_fd(t->wake);
	free(t);
}

static const struct wire_ops tcp_ops = {
	.send = tcp_send,
	.credit = tcp_credit,
	.post = tcp_post,
	.recv = tcp_recv,
	.grant = tcp_grant,
	.break_ = tcp_break,
	.update_rtt = tcp_update_rtt,
	.close = tcp_close,
};

void tcp_set_options(int fd, int timeout_ms)
{
	int on = 1, idle = timeout_ms / 3000 > 0 ? timeout_ms / 3000 : 1, probes = 3;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	backoff_bound(fd, timeout_ms);
}

/* Whether both ends of the connection have the same address. */
static bool is_within_host(int fd)
{
	union address local = {0}, peer = {0};
	socklen_t local_len = sizeof local, peer_len = sizeof peer;

	if (getsockname(fd, &local.sa, &local_len) != 0 ||
	    getpeername(fd, &peer.sa, &peer_len) != 0 || local.sa.sa_family != peer.sa.sa_family)
		return false;
	if (peer.sa.sa_family == AF_INET)
		return local.in4.sin_addr.s_addr == peer.in4.sin_addr.s_addr;
	return peer.sa.sa_family == AF_INET6 &&
	       memcmp(&local.in6.sin6_addr, &peer.in6.sin6_addr, sizeof local.in6.sin6_addr) == 0;
}

static uint32_t host_window(uint32_t block_size)
{
	uint32_t window = HOST_WINDOW / block_size;

	return window > 2 ? window : 2;
}

int tcp_wire(struct lane *l, uint32_t epoch, int fd, struct wire **out)
{
	union address peer = {0};
	socklen_t len = sizeof peer;
	char text[80];
	struct tcp *t = calloc(1, sizeof *t);

	if (!t) {
		close_fd(fd);
		return fail_as(OUT_MEMORY, "allocate a connection: %m");
	}
	t->wire.ops = &tcp_ops;
	t->fd = fd;
	t->lane = l;
	t->pool = lane_pool(l);
	t->epoch = epoch;
	t->timeout_ms = lane_timeout_ms(l);
	t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->wake < 0) {
		fail_as(OUT_MEMORY, "create an eventfd for a connection: %m");
		tcp_close(&t->wire);
		return -1;
	}
	if (getpeername(fd, &peer.sa, &len) == 0 &&
	    (peer.sa.sa_family == AF_INET || peer.sa.sa_family == AF_INET6))
		snprintf(t->wire.name, sizeof t->wire.name, "tcp %s",
			 address_text(&peer, text, sizeof text));
	else
		snprintf(t->wire.name, sizeof t->wire.name, "tcp");
	if (is_within_host(fd))
		t->wire.window = host_window(lane_block_size(l));
	else if (lane_side_of(l) == LANE_SOURCE)
		zerocopy_begin(&t->zerocopy, fd, lane_block_size(l));
	tcp_set_options(fd, t->timeout_ms);
	*out = &t->wire;
	return 0;
}
