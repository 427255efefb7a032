/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/tunnel.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"

/* When a side has ended, what is left has LAST_MS. If all of it has been read, the receiver must
 * take some each STALL_MS. A process that reads no more must say something each DEAF_MS, or end.
 * What this host has sent, DONE for one, has ARRIVAL_MS, the default of --timeout: a cut may be as
 * long. */
enum {
	TUNNEL_BYTES = 128 << 10,
	STALL_MS = 1000,
	DEAF_MS = 2000,
	LAST_MS = 30000,
	ARRIVAL_MS = 15000,
	SIGTERM_MS = 100 /* how often to look for one meanwhile */
};

struct flow {
	size_t start, end;
	uint8_t bytes[TUNNEL_BYTES];
};

struct tunnel {
	struct channel *ch;
	int in, out;
	bool ended; /* in or ch has ended: nothing more is read */
	bool gone; /* the process that writes to in has ended; what it wrote may still be there */
	bool broken; /* ch failed */
	bool deaf; /* nobody reads out any more: what the peer sends is dropped */
	struct failure failure; /* the first one; OUT_DONE: none */
	uint64_t stall_ms, last_ms; /* when what is left is dropped (clock_ms); 0: no side ended */
	struct flow to_peer, from_peer;
};

static volatile sig_atomic_t was_asked_to_end;

static void on_sigterm(int signo)
{
	was_asked_to_end = signo;
}

void tunnel_end_on_sigterm(void)
{
	struct sigaction sa = {.sa_handler = on_sigterm};
	sigset_t blocked;

	sigemptyset(&sa.sa_mask);
	sigaction(SIGTERM, &sa, NULL);
	/* It arrives only while the tunnel waits. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
}

static void keep_failure(struct tunnel *t)
{
	if (t->failure.code == OUT_DONE)
		t->failure = *failed();
}

static void read_input(struct tunnel *t)
{
	struct flow *f = &t->to_peer;
	ssize_t n = read(t->in, f->bytes, sizeof f->bytes);

	if (n > 0)
		f->end = (size_t)n;
	if (n >= 0 || errno == EAGAIN || errno == EINTR) {
		t->ended |= n == 0;
		return;
	}
	fail_as(OUT_SOCKET, "read what the other process sends: %m");
	keep_failure(t);
	t->ended = true;
}

static void read_peer(struct tunnel *t)
{
	struct flow *f = &t->from_peer;
	bool eof = false;
	ssize_t n = channel_read(t->ch, f->bytes, sizeof f->bytes, &eof);

	if (n > 0)
		f->end = (size_t)n;
	if (n < 0)
		keep_failure(t);
	t->broken |= n < 0;
	t->ended |= n < 0 || eof;
}

static void limit_stall(struct tunnel *t)
{
	t->stall_ms = clock_ms() + (t->ended ? STALL_MS : t->deaf ? DEAF_MS : LAST_MS);
}

/* Counts n bytes as delivered. */
static void advance_flow(struct tunnel *t, struct flow *f, ssize_t n)
{
	if (t->stall_ms)
		limit_stall(t);
	explicit_bzero(f->bytes + f->start, (size_t)n);
	f->start += (size_t)n;
	if (f->start == f->end)
		f->start = f->end = 0;
}

static bool is_flow_empty(const struct flow *f)
{
	return f->start == f->end;
}

/* A receiver that takes nothing more loses what is left. */
static void drop_flow(struct tunnel *t, struct flow *f)
{
	f->start = f->end = 0;
	t->ended = true;
}

static void write_output(struct tunnel *t)
{
	struct flow *f = &t->from_peer;
	ssize_t n = write(t->out, f->bytes + f->start, f->end - f->start);

	if (n > 0) {
		advance_flow(t, f, n);
	} else if (n < 0 && errno == EPIPE) {
		/* The other process ends. What it says last, such as why, may still be to come. */
		t->deaf = true;
		limit_stall(t);
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		fail_as(OUT_SOCKET, "pass on what was received: %m");
		keep_failure(t);
		drop_flow(t, f);
	}
}

static void write_peer(struct tunnel *t)
{
	struct flow *f = &t->to_peer;
	ssize_t n = channel_write(t->ch, f->bytes + f->start, f->end - f->start);

	if (n > 0) {
		advance_flow(t, f, n);
	} else if (n < 0) {
		keep_failure(t);
		t->broken = true;
		drop_flow(t, f);
	}
}

static void wait_for_tunnel(struct tunnel *t)
{
	uint64_t deadline_ms = t->stall_ms < t->last_ms ? t->stall_ms : t->last_ms;
	uint64_t left_ms = deadline_ms ? (uint64_t)clock_left(deadline_ms) : 0;
	struct timespec left = {.tv_sec = (time_t)(left_ms / 1000),
				.tv_nsec = (long)(left_ms % 1000) * 1000000};
	struct pollfd p[4];
	sigset_t none;
	int n = channel_polls(t->ch, !is_flow_empty(&t->to_peer), p), at_in;

	/* A peer whose bytes cannot be passed on is not read. */
	if (!is_flow_empty(&t->from_peer) || t->ended)
		p[0].events &= ~POLLIN;
	if (!p[0].events)
		p[0].fd = -1;
	/* A peer that takes nothing must not hide that the other process has ended. */
	at_in = n++;
	if (is_flow_empty(&t->to_peer))
		p[at_in] = (struct pollfd){.fd = t->ended ? -1 : t->in, .events = POLLIN};
	else
		p[at_in] = (struct pollfd){.fd = t->ended || t->gone ? -1 : t->in};
	p[n++] = (struct pollfd){.fd = is_flow_empty(&t->from_peer) ? -1 : t->out,
				 .events = POLLOUT};
	sigemptyset(&none);
	if (ppoll(p, (nfds_t)n, deadline_ms ? &left : NULL, &none) > 0)
		t->gone |= p[at_in].fd >= 0 && (p[at_in].revents & (POLLHUP | POLLERR));
}

static bool is_late(struct tunnel *t)
{
	if ((t->ended || t->gone || t->deaf) && !t->last_ms) {
		limit_stall(t);
		t->last_ms = clock_ms() + LAST_MS;
	}
	if (!t->last_ms || (clock_left(t->stall_ms) && clock_left(t->last_ms)))
		return false;
	if (t->deaf && !t->ended && !t->gone) {
		errno = EPIPE;
		fail_as(OUT_SOCKET, "pass on what was received: %m");
		keep_failure(t);
	}
	return true;
}

static void step_tunnel(struct tunnel *t)
{
	if (!t->ended && is_flow_empty(&t->to_peer))
		read_input(t);
	if (!t->ended && is_flow_empty(&t->from_peer))
		read_peer(t);
	if (!is_flow_empty(&t->from_peer) && !t->deaf)
		write_output(t);
	if (t->deaf)
		t->from_peer.start = t->from_peer.end = 0;
	if (!is_flow_empty(&t->to_peer) && !t->broken)
		write_peer(t);
}

static void await_arrival(const struct channel *ch)
{
	uint64_t until = clock_ms() + ARRIVAL_MS, slice;

	channel_set_timeout(ch, ARRIVAL_MS);
	do
		slice = clock_ms() + SIGTERM_MS;
	while (!channel_flush(ch, slice) && clock_left(slice) == 0 && clock_left(until) > 0 &&
	       !was_asked_to_end);
}

int tunnel_run(struct channel *ch, const void *already_read, size_t len, int in, int out)
{
	static struct tunnel t;

	t = (struct tunnel){.ch = ch, .in = in, .out = out};
	if (len > sizeof t.from_peer.bytes)
		return fail_as(OUT_PROTOCOL, "pass on what was read: too much");
	memcpy(t.from_peer.bytes, already_read, len);
	t.from_peer.end = len;
	if (set_nonblocking(in) || set_nonblocking(out)) {
		/* A read that waits would keep what comes from the other side. */
		fail_as(OUT_SOCKET, "pass on what the other process sends: %m");
		keep_failure(&t);
		t.ended = true;
		drop_flow(&t, &t.from_peer);
	}
	for (;;) {
		step_tunnel(&t);
		if (t.ended && is_flow_empty(&t.from_peer) &&
		    (is_flow_empty(&t.to_peer) || t.broken))
			break;
		if (is_late(&t) || was_asked_to_end)
			break;
		wait_for_tunnel(&t);
	}
	if (!t.broken)
		await_arrival(ch);
	explicit_bzero(&t.to_peer, sizeof t.to_peer);
	explicit_bzero(&t.from_peer, sizeof t.from_peer);
	channel_free(ch);
	close_fd(in);
	close_fd(out);
	return t.failure.code == OUT_DONE ? 0 : fail_again(&t.failure);
}
