/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/dial.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/tos.h"
#include "base/worker.h"

enum { RETRY_FIRST_MS = 10, RETRY_MS = 100, ATTEMPT_LEAST_MS = 1000 };

int dial_resolve(const char *host, unsigned port, int family,
		 union address to[static ADDRESSES_MAX])
{
	struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	char service[8];
	int count = 0, rc;

	snprintf(service, sizeof service, "%u", port);
	rc = getaddrinfo(host, service, &hints, &list);
	if (rc)
		return fail_as(OUT_START, "look up host %s: %s", host,
			       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	for (struct addrinfo *a = list; a && count < ADDRESSES_MAX; a = a->ai_next) {
		if (a->ai_addrlen <= sizeof *to)
			memcpy(&to[count++], a->ai_addr, a->ai_addrlen);
	}
	freeaddrinfo(list);
	return count ? count : fail_as(OUT_START, "look up host %s: no address", host);
}

static int fail_interrupted(void)
{
	return fail_as(OUT_SIGNAL, "interrupted while connecting");
}

/* Polls fds, or just waits if n is 0, until the deadline, in steps short enough to notice
 * cancelled(). Returns 1, 0 at the deadline, or -1 with a failure and errno. */
static int wait_fds(struct pollfd *fds, unsigned n, uint64_t deadline_ms)
{
	int rc;

	do {
		int left = clock_left(deadline_ms);

		if (cancelled())
			return fail_interrupted();
		rc = poll(fds, n, left > RETRY_MS ? RETRY_MS : left);
		if (rc < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for the peer: %m");
	} while (rc <= 0 && clock_left(deadline_ms) > 0);
	return rc > 0;
}

/* Returns a connected descriptor, or -1 with errno. */
static int connect_address(const union address *to, unsigned tos, uint64_t deadline_ms)
{
	int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int err = 0, ready;

	if (fd < 0)
		return -1;
	if (tos_set(fd, to->sa.sa_family, tos) == 0 && connect(fd, &to->sa, address_len(to)) == 0)
		return fd;
	err = errno;
	if (err == EINPROGRESS || err == EINTR) {
		ready = wait_fds(&p, 1, deadline_ms);
		err = ready < 0 ? errno : ETIMEDOUT;
		if (ready > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
			err = errno;
	}
	if (!err)
		return fd;
	close(fd);
	errno = err;
	return -1;
}

/* Tries all addresses in turn. Each gets an equal share of the time left, so that a silent address
 * leaves time for the others. */
static int connect_any_address(const union address *to, unsigned n, unsigned tos,
			       uint64_t deadline_ms, union address *dialed)
{
	int refused = 0, fd = -1;

	for (unsigned i = 0; i < n && fd < 0; i++) {
		uint64_t now = clock_ms();
		uint64_t share = now < deadline_ms ? (deadline_ms - now) / (n - i) : 0;

		if (share < ATTEMPT_LEAST_MS)
			share = ATTEMPT_LEAST_MS;
		if (now + share > deadline_ms)
			share = deadline_ms > now ? deadline_ms - now : 0;
		fd = connect_address(&to[i], tos, now + share);
		*dialed = to[i];
		if (fd < 0 && errno == ECONNREFUSED)
			refused = errno;
	}
	if (fd < 0 && refused)
		errno = refused;
	return fd;
}

static int await_handshake(struct channel *ch, const struct dial_opts *o, uint64_t deadline_ms)
{
	uint64_t from_ms = clock_ms(), until_ms = from_ms + (unsigned)o->silence_ms;
	struct pollfd p[2];
	int rc;

	if (until_ms > deadline_ms)
		until_ms = deadline_ms;
	while ((rc = channel_handshake(ch)) == 0) {
		int n = channel_polls(ch, false, p);

		if (clock_left(until_ms) == 0)
			return fail_as(
				OUT_TIMEOUT,
				"connect to %s port %u: no answer to the TLS handshake in %g s",
				o->host, o->port, (double)(clock_ms() - from_ms) / 1000);
		if (wait_fds(p, (unsigned)n, until_ms) < 0)
			return -1;
	}
	return rc > 0 ? 0 : -1;
}

static int fail_unreachable(const struct dial_opts *o)
{
	const char *why = errno == ECONNREFUSED ? "listens" : "can be reached";
	const char *more = errno == ECONNREFUSED ? "" : "; is a firewall in between?";

	return fail_as(OUT_CONNECT, "connect to %s port %u: %m: no %s %s there (tried for %g s%s)",
		       o->host, o->port, o->listener, why, o->timeout_ms / 1000.0, more);
}

/* One attempt. Returns 0, or -1 with a failure; *again: another attempt may succeed. */
static int dial_once(const struct dial_opts *o, const union address *to, unsigned n,
		     uint64_t deadline_ms, struct channel **out, union address *dialed, bool *again)
{
	int fd = connect_any_address(to, n, o->tos, deadline_ms, dialed);

	*again = true;
	if (fd < 0)
		return cancelled() ? fail_interrupted() : fail_unreachable(o);
	*again = false;
	if (channel_tls_client(fd, o->key, out))
		return -1;
	channel_set_peer(*out, o->host);
	if (o->caller == CALLER_CONDUCTOR)
		channel_set_caller(*out, o->caller, o->user);
	if (await_handshake(*out, o, deadline_ms) == 0)
		return 0;
	channel_free(*out);
	*out = NULL;
	/* A listener closes connections early to make room, or because it is busy. Neither proves
	 * that the key is wrong. */
	*again = failed()->code == OUT_PEER_LOST;
	return -1;
}

/* The time is over. Reports why the last listener closed the connection, if any did. */
static int fail_all_tries(const struct dial_opts *o, const struct failure *closed, unsigned times)
{
	if (times == 0 || failed()->code == OUT_CONNECT)
		return -1;
	return fail_as(OUT_CONNECT,
		       "connect to %s port %u: %s, before the keys were verified (%u %s in %g s)",
		       o->host, o->port, closed->text, times, times == 1 ? "try" : "tries",
		       o->timeout_ms / 1000.0);
}

int dial_connect(const struct dial_opts *o, struct channel **out, union address *dialed)
{
	unsigned times = 0, pause_ms = RETRY_FIRST_MS;
	union address to[ADDRESSES_MAX];
	struct failure closed = {0};
	uint64_t deadline_ms;
	bool again;
	int n = dial_resolve(o->host, o->port, o->family, to);

	if (n < 0)
		return -1;
	deadline_ms = clock_ms() + (unsigned)o->timeout_ms;
	while (dial_once(o, to, (unsigned)n, deadline_ms, out, dialed, &again)) {
		if (cancelled())
			return fail_interrupted();
		if (failed()->code == OUT_PEER_LOST) {
			closed = *failed();
			times++;
		}
		if (again && clock_left(deadline_ms) > (int)pause_ms) {
			if (wait_fds(NULL, 0, clock_ms() + pause_ms) < 0)
				return -1;
		} else if (again || clock_left(deadline_ms) == 0) {
			return fail_all_tries(o, &closed, times);
		} else {
			return -1;
		}
		pause_ms = pause_ms * 2 < RETRY_MS ? pause_ms * 2 : RETRY_MS;
	}
	return 0;
}

int dial_tcp(const struct dial_opts *o, uint64_t deadline_ms)
{
	union address to[ADDRESSES_MAX], dialed;
	int n = dial_resolve(o->host, o->port, o->family, to), fd;

	if (n < 0)
		return -1;
	fd = connect_any_address(to, (unsigned)n, o->tos, deadline_ms, &dialed);
	return fd < 0 ? fail_as(OUT_CONNECT, "connect to %s port %u: %m", o->host, o->port) : fd;
}
