/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/dial.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/worker.h"
#include "session/porter.h"

enum { RETRY_MS = 100, ATTEMPT_LEAST_MS = 1000 };

int resolve(const char *host, unsigned port, int family, union address to[static ADDRESSES_MAX])
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

static int interrupted(void)
{
	return fail_as(OUT_SIGNAL, "interrupted while connecting");
}

/* Wait on fds (none: just wait) until the deadline, in steps that notice cancelling. */
static int wait_on(struct pollfd *fds, unsigned n, uint64_t deadline_ms)
{
	int rc;

	do {
		int left = clock_left(deadline_ms);

		if (cancelled())
			return interrupted();
		rc = poll(fds, n, left > RETRY_MS ? RETRY_MS : left);
	} while (rc <= 0 && clock_left(deadline_ms) > 0);
	return rc > 0;
}

/* One attempt: a connected descriptor, or -1 with errno. */
static int attempt(const union address *to, uint64_t deadline_ms)
{
	int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int err = 0;

	if (fd < 0)
		return -1;
	if (connect(fd, &to->sa, address_len(to)) == 0)
		return fd;
	err = errno;
	if (err == EINPROGRESS || err == EINTR) {
		err = ETIMEDOUT;
		if (wait_on(&p, 1, deadline_ms) > 0)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	}
	if (!err)
		return fd;
	close(fd);
	errno = err;
	return -1;
}

/* All addresses, one after the other; one that answers nothing leaves time for the rest. */
static int attempt_all(const union address *to, unsigned n, uint64_t deadline_ms,
		       union address *dialed)
{
	int refused = 0, fd = -1;

	for (unsigned i = 0; i < n && fd < 0; i++) {
		uint64_t now = clock_ms();
		uint64_t share = now < deadline_ms ? (deadline_ms - now) / (n - i) : 0;

		if (share < ATTEMPT_LEAST_MS)
			share = ATTEMPT_LEAST_MS;
		if (now + share > deadline_ms)
			share = deadline_ms > now ? deadline_ms - now : 0;
		fd = attempt(&to[i], now + share);
		*dialed = to[i];
		if (fd < 0 && errno == ECONNREFUSED)
			refused = errno;
	}
	if (fd < 0 && refused)
		errno = refused;
	return fd;
}

static int handshake(struct channel *ch, int timeout_ms)
{
	int patience_ms = timeout_ms < HANDSHAKE_MS ? timeout_ms : HANDSHAKE_MS;
	uint64_t deadline_ms = clock_ms() + (unsigned)patience_ms;
	struct pollfd p[2];
	int rc;

	while ((rc = channel_handshake(ch)) == 0) {
		int n = channel_polls(ch, false, p);

		if (clock_left(deadline_ms) == 0)
			return fail_as(OUT_TIMEOUT, "the peer does not answer the handshake");
		if (wait_on(p, (unsigned)n, deadline_ms) < 0)
			return -1;
	}
	return rc > 0 ? 0 : -1;
}

static int give_up(const char *host, unsigned port, int timeout_ms)
{
	if (errno == ECONNREFUSED)
		return fail_as(
			OUT_CONNECT,
			"connect to %s port %u: %m: no rdrecv listens there (tried for %g s)", host,
			port, timeout_ms / 1000.0);
	return fail_as(OUT_CONNECT,
		       "connect to %s port %u: %m: no rdrecv can be reached there (tried for %g s; "
		       "is a firewall in between?)",
		       host, port, timeout_ms / 1000.0);
}

int dial(const char *host, unsigned port, int family, int timeout_ms, const struct psk *key,
	 struct channel **out, union address *dialed)
{
	union address to[ADDRESSES_MAX];
	uint64_t deadline_ms;
	int n, fd;

	n = resolve(host, port, family, to);
	if (n < 0)
		return -1;
	deadline_ms = clock_ms() + (unsigned)timeout_ms;
	while ((fd = attempt_all(to, (unsigned)n, deadline_ms, dialed)) < 0) {
		int err = errno;

		if (cancelled())
			return interrupted();
		if (clock_left(deadline_ms) == 0) {
			errno = err;
			return give_up(host, port, timeout_ms);
		}
		if (wait_on(NULL, 0, clock_ms() + RETRY_MS) < 0)
			return -1;
	}
	if (channel_tls_client(fd, key, out))
		return -1;
	channel_set_peer(*out, host);
	if (handshake(*out, timeout_ms) == 0)
		return 0;
	if (failed()->code == OUT_PEER_LOST) {
		struct failure f = *failed();

		fail_as(f.code, "%s: does that rdrecv serve another sender?", f.text);
	}
	channel_free(*out);
	*out = NULL;
	return -1;
}
