/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/tcp/tcp_connect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/tos.h"
#include "lane/fault.h"
#include "lane/hello.h"
#include "lane/tcp/tcp_impl.h"

enum { DIAL_MAX = 64 };

/* One address that is being tried. */
struct dial_attempt {
	const union address *to;
	int fd; /* -1: failed; the reason is in dial.text */
	bool connected; /* our hello was sent */
	uint8_t hello[LANE_HELLO_SIZE];
	size_t hello_len;
	struct hello_terms terms;
};

struct dial {
	struct lane *lane;
	uint32_t epoch;
	const struct lane_key *key;
	struct dial_attempt attempts[DIAL_MAX];
	unsigned count, alive;
	char text[FAIL_TEXT_MAX]; /* why attempts failed */
	enum outcome code;
	bool lacked; /* this process had no room for the socket of one */
};

/* Closes an attempt that failed, and adds the reason to d->text. */
static void drop_attempt(struct dial *d, struct dial_attempt *a, enum outcome code, const char *why)
{
	char where[80];
	size_t used = strlen(d->text);

	close_fd(a->fd);
	a->fd = -1;
	d->alive--;
	/* A failed authentication is a more important reason than a closed port. */
	if (d->code != OUT_AUTH)
		d->code = code;
	/* A text that is too long is truncated. */
	if (snprintf(d->text + used, sizeof d->text - used, "%sto %s: %s", used > 0 ? "; " : "",
		     address_text(a->to, where, sizeof where), why) < 0)
		d->text[used] = '\0';
}

/* what: "set the type of service: ", or "" */
static void drop_attempt_errno(struct dial *d, struct dial_attempt *a, const char *what, int err)
{
	char why[128];

	errno = err;
	snprintf(why, sizeof why, "%s%m", what);
	drop_attempt(d, a, OUT_CONNECT, why);
}

static void start_attempt(struct dial *d, struct dial_attempt *a, const union address *to)
{
	*a = (struct dial_attempt){.to = to};
	d->alive++;
	a->fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	d->lacked |= a->fd < 0 && lacks_room_for_fd(errno);
	if (a->fd >= 0 && tos_set(a->fd, to->sa.sa_family, lane_tos(d->lane)) != 0)
		drop_attempt_errno(d, a, "set the type of service: ", errno);
	else if (a->fd < 0 ||
		 (connect(a->fd, &to->sa, address_len(to)) != 0 && errno != EINPROGRESS))
		drop_attempt_errno(d, a, "", errno);
}

/* connect(2) has ended: sends the hello if it succeeded. */
static void send_attempt_hello(struct dial *d, struct dial_attempt *a)
{
	uint8_t hello[LANE_HELLO_SIZE];
	int err = 0;
	socklen_t len = sizeof err;
	ssize_t n;

	if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0) {
		drop_attempt_errno(d, a, "", err ? err : errno);
		return;
	}
	hello_write(d->lane, d->epoch, false, d->key, hello);
	/* The socket buffer is empty, so send(2) takes all or nothing. */
	n = send(a->fd, hello, sizeof hello, MSG_NOSIGNAL);
	if (n == LANE_HELLO_SIZE)
		a->connected = true;
	else
		drop_attempt_errno(d, a, "", n < 0 ? errno : EIO);
}

/* Returns true once the other end has authenticated. */
static bool read_attempt_hello(struct dial *d, struct dial_attempt *a)
{
	ssize_t n = recv(a->fd, a->hello + a->hello_len, sizeof a->hello - a->hello_len, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0) {
		drop_attempt_errno(d, a, "", errno);
		return false;
	}
	if (n == 0) {
		drop_attempt(d, a, OUT_CONNECT, "the peer closed the connection without an answer");
		return false;
	}
	a->hello_len += (size_t)n;
	if (a->hello_len < sizeof a->hello)
		return false;
	if (hello_check(d->lane, d->epoch, true, d->key, a->hello, &a->terms) == 0)
		return true;
	drop_attempt(d, a, failed()->code, failed()->text);
	return false;
}

/* Waits for events. Returns the attempt that succeeded, or NULL for none yet; *rc is -1 to stop. */
static struct dial_attempt *poll_attempts(struct dial *d, uint64_t deadline_ms, int *rc)
{
	struct pollfd p[DIAL_MAX + 1];
	struct dial_attempt *of[DIAL_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < d->count; i++) {
		struct dial_attempt *a = &d->attempts[i];

		if (a->fd < 0)
			continue;
		p[n] = (struct pollfd){.fd = a->fd, .events = a->connected ? POLLIN : POLLOUT};
		of[n++] = a;
	}
	p[n] = (struct pollfd){.fd = lane_abort_fd(d->lane), .events = POLLIN};
	*rc = -1;
	if (poll(p, n + 1, clock_left(deadline_ms)) < 0 && errno != EINTR) {
		fail_as(OUT_SOCKET, "wait for connections of lane %u: %m", lane_index(d->lane));
		return NULL;
	}
	if (lane_aborted(d->lane)) {
		fail_as(OUT_PEER_LOST, "lane %u was aborted", lane_index(d->lane));
		return NULL;
	}
	*rc = 0;
	for (unsigned i = 0; i < n; i++) {
		if (p[i].revents == 0)
			continue;
		if (!of[i]->connected)
			send_attempt_hello(d, of[i]);
		else if (read_attempt_hello(d, of[i]))
			return of[i];
	}
	return NULL;
}

static void set_terms(struct wire *w, const struct lane *l, const struct hello_terms *terms)
{
	w->depth = terms->depth;
	w->sealed = terms->seals || lane_demands_seal(l);
}

static int run_attempts(struct dial *d, uint64_t deadline_ms, struct wire **out)
{
	struct dial_attempt *won = NULL;
	int rc, fd;

	while (!won && d->alive > 0 && clock_ms() < deadline_ms) {
		won = poll_attempts(d, deadline_ms, &rc);
		if (rc)
			return -1;
	}
	if (won) {
		fd = won->fd;
		won->fd = -1;
		if (tcp_wire(d->lane, d->epoch, fd, out))
			return -1;
		set_terms(*out, d->lane, &won->terms);
		return 0;
	}
	for (unsigned i = 0; i < d->count; i++)
		if (d->attempts[i].fd >= 0)
			drop_attempt(d, &d->attempts[i], OUT_CONNECT,
				     d->attempts[i].connected ? "connected, but no answer in time"
							      : "no connection in time");
	return fail_as(d->code == OUT_AUTH ? OUT_AUTH
		       : d->lacked         ? OUT_MEMORY
					   : OUT_CONNECT,
		       "connect lane %u %s", lane_index(d->lane), d->text);
}

int tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key, const union address *to,
	     unsigned n, uint64_t deadline_ms, struct wire **out)
{
	struct dial d = {.lane = l, .epoch = epoch, .key = key, .count = n};
	int rc;

	if (n == 0 || n > DIAL_MAX)
		return fail_as(OUT_CONNECT, "connect lane %u: %s", lane_index(l),
			       n == 0 ? "no address" : "too many addresses");
	for (unsigned i = 0; i < n; i++)
		start_attempt(&d, &d.attempts[i], &to[i]);
	rc = run_attempts(&d, deadline_ms, out);
	for (unsigned i = 0; i < n; i++)
		close_fd(d.attempts[i].fd);
	return rc;
}

int tcp_take(struct lane *l, uint32_t epoch, const struct lane_key *key, int fd,
	     const struct hello_terms *terms, struct wire **out)
{
	uint8_t hello[LANE_HELLO_SIZE];
	struct wire *w;
	ssize_t n;

	if (set_nonblocking(fd)) {
		fail_as(OUT_SOCKET, "lane %u: make a socket non-blocking: %m", lane_index(l));
		close_fd(fd);
		return -1;
	}
	/* The hello accepts the connection, so everything that can fail comes first. */
	if (tcp_wire(l, epoch, fd, &w))
		return -1;
	set_terms(w, l, terms);
	hello_write(l, epoch, true, key, hello);
	n = send(fd, hello, sizeof hello, MSG_NOSIGNAL);
	if (n != LANE_HELLO_SIZE) {
		errno = n < 0 ? errno : EIO;
		fail_as(OUT_CONNECT, "lane %u: answer the peer's hello: %m", lane_index(l));
		w->ops->close(w);
		return -1;
	}
	if (fault_accept(lane_index(l))) {
		fail_as(OUT_CONNECT, "lane %u: connection dropped by an injected fault",
			lane_index(l));
		w->ops->close(w);
		return -1;
	}
	*out = w;
	return 0;
}

/* ---- listening --------------------------------------------------------------------------- */

static int listen_at(const union address *addr, unsigned tos)
{
	bool v6 = addr->sa.sa_family == AF_INET6;
	int on = 1, fd, err;

	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* IPV6_V6ONLY: IPv4 has a listener of its own at the same port. Another process may take
	 * the port between bind and listen, so a failure of either counts alike. */
	if ((!v6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
	    tos_set(fd, addr->sa.sa_family, tos) == 0 &&
	    bind(fd, &addr->sa, address_len(addr)) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	err = errno;
	close_fd(fd);
	errno = err;
	return -1;
}

static void set_port(union address *a, unsigned port)
{
	if (a->sa.sa_family == AF_INET6)
		a->in6.sin6_port = htons((uint16_t)port);
	else
		a->in4.sin_port = htons((uint16_t)port);
}

static unsigned get_port(const union address *a)
{
	return ntohs(a->sa.sa_family == AF_INET6 ? a->in6.sin6_port : a->in4.sin_port);
}

int tcp_listen(const union address *addr, unsigned lo, unsigned hi, unsigned tos, unsigned *port)
{
	union address at = *addr;
	socklen_t len = sizeof at;
	char where[80];
	unsigned p = lo;
	int fd;

	if (get_port(addr) != 0)
		lo = hi = p = get_port(addr);
	do {
		set_port(&at, p);
		fd = listen_at(&at, tos);
	} while (fd < 0 && (errno == EADDRINUSE || errno == EACCES) && p++ < hi);
	if (fd < 0 && lo != hi) {
		set_port(&at, 0);
		return fail_as(OUT_SOCKET, "listen on %s, ports %u to %u: %m",
			       address_text(&at, where, sizeof where), lo, hi);
	}
	if (fd < 0)
		return fail_as(OUT_SOCKET, "listen on %s: %m",
			       address_text(&at, where, sizeof where));
	if (getsockname(fd, &at.sa, &len) != 0) {
		fail_as(OUT_SOCKET, "listen on %s: %m", address_text(&at, where, sizeof where));
		close_fd(fd);
		return -1;
	}
	*port = get_port(&at);
	return fd;
}
