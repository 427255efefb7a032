/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/strangers.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

enum {
	ACCEPTS_AT_ONCE = 64, /* from one listener, before the strangers are served again */
	ACCEPT_PAUSE_MS = 100,
	STRANGERS_LEAST = 8,
	PREFIX_BYTES = 8, /* of an IPv6 address: one site usually has a whole /64 */
	TLS_RECORD_HEAD = 5, /* type, version, length */
	TLS_MESSAGE_HEAD = 4, /* type, length */
	TLS_CLIENT_HELLO = 1,
};

void strangers_init(struct strangers *s, unsigned most)
{
	struct rlimit files;

	s->count = 0;
	s->accept_after = 0;
	s->most = most;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 2 < s->most)
		s->most = (unsigned)files.rlim_cur / 2;
	if (s->most < STRANGERS_LEAST)
		s->most = STRANGERS_LEAST;
}

/* ---- adding and closing -------------------------------------------------------------------- */

static void address_group(const union address *a, uint8_t to[static 16])
{
	memset(to, 0, 16);
	if (a->sa.sa_family == AF_INET) {
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &a->in4.sin_addr, 4);
	} else if (a->sa.sa_family == AF_INET6) {
		memcpy(to, &a->in6.sin6_addr,
		       IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr) ? 16 : PREFIX_BYTES);
	}
}

/* Adds by to the count of all strangers from this address. Returns their number. */
static unsigned adjust_address_count(struct strangers *s, const uint8_t from[static 16], int by)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->count; i++) {
		struct stranger *other = &s->list[i];

		if (memcmp(other->from, from, sizeof other->from) == 0) {
			other->address_count += (unsigned)by;
			n++;
		}
	}
	return n;
}

void stranger_release(struct strangers *s, unsigned i)
{
	struct stranger *gone = &s->list[i];
	uint8_t from[sizeof gone->from];

	memcpy(from, gone->from, sizeof from);
	s->count--;
	memmove(gone, gone + 1, (s->count - i) * sizeof *gone);
	adjust_address_count(s, from, -1);
}

void stranger_close(struct strangers *s, unsigned i)
{
	if (s->list[i].tls)
		channel_free(s->list[i].tls);
	else
		close_fd(s->list[i].fd);
	stranger_release(s, i);
}

void strangers_close(struct strangers *s)
{
	while (s->count > 0)
		stranger_close(s, s->count - 1);
}

/* Closes the oldest stranger of the address with the most strangers. Of several such addresses, the
 * one with the oldest stranger counts. */
static bool evict_stranger(struct strangers *s)
{
	unsigned victim = 0;

	for (unsigned i = 1; i < s->count; i++)
		if (s->list[i].address_count > s->list[victim].address_count)
			victim = i;
	if (s->count == 0)
		return false;
	stranger_close(s, victim);
	return true;
}

void strangers_add(struct strangers *s, int fd, const union address *from)
{
	struct stranger new = {.fd = fd, .due = clock_ms() + STRANGER_MS};

	address_group(from, new.from);
	new.address_count = adjust_address_count(s, new.from, 1) + 1;
	s->list[s->count++] = new;
	if (s->count > s->most)
		evict_stranger(s);
}

/* accept(2) takes a descriptor before it checks whether a connection waits, so EMFILE alone does
 * not mean that one does. */
static bool has_waiting_connection(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

bool strangers_accepting(const struct strangers *s)
{
	return clock_ms() >= s->accept_after;
}

/* Warns once, because strangers could repeat the message as often as they like. */
static void warn_failed(struct strangers *s, const char *what, int err)
{
	if (!s->warned)
		log_warn("%s a connection: %s", what, strerror(err));
	s->warned = true;
}

void strangers_lost(struct strangers *s, int err)
{
	warn_failed(s, "accept", err);
	if (!lacks_room_for_fd(err))
		return;
	s->lacked = err;
	s->lacked_ms = clock_ms();
}

static void pause_accepting(struct strangers *s)
{
	s->accept_after = clock_ms() + ACCEPT_PAUSE_MS;
}

void strangers_accept(struct strangers *s, int listener)
{
	for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
		union address from = {.sa = {.sa_family = AF_UNSPEC}};
		socklen_t len = sizeof from;
		int fd = accept4(listener, &from.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		int err = errno;

		if (fd >= 0) {
			strangers_add(s, fd, &from);
			continue;
		}
		if (err == EINTR || err == ECONNABORTED)
			continue;
		if (err == EAGAIN || (lacks_room_for_fd(err) && !has_waiting_connection(listener)))
			return;
		strangers_lost(s, err);
		/* The evicted connection may be the peer's; then the warning explains why. */
		if (!lacks_room_for_fd(err) || !evict_stranger(s)) {
			pause_accepting(s);
			return;
		}
	}
}

uint64_t strangers_due(const struct strangers *s)
{
	return s->count ? s->list[0].due : 0;
}

void strangers_expire(struct strangers *s)
{
	while (s->count > 0 && clock_left(strangers_due(s)) == 0)
		stranger_close(s, 0);
}

/* ---- what they send ------------------------------------------------------------------------- */

/* Makes poll(2) report the socket as readable only when this many bytes are there. */
static int set_wake_bytes(struct strangers *s, int fd, int bytes)
{
	if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0)
		return 0;
	warn_failed(s, "wait for the bytes of", errno);
	return -1;
}

/* The number of bytes that have arrived, or -1. */
static int count_there(struct strangers *s, int fd)
{
	int there = count_readable(fd);

	if (there < 0)
		warn_failed(s, "count the bytes of", errno);
	return there;
}

int stranger_hello(struct strangers *s, unsigned i)
{
	int fd = s->list[i].fd, there, whole = TLS_RECORD_HEAD;
	uint8_t head[TLS_RECORD_HEAD];
	ssize_t n = recv(fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0 || head[0] != TLS_HANDSHAKE)
		return -1;
	if (n == TLS_RECORD_HEAD)
		whole += head[3] << 8 | head[4];
	if (whole > CLIENT_HELLO_MAX || (there = count_there(s, fd)) < 0)
		return -1;
	if (there >= whole && n == TLS_RECORD_HEAD)
		return set_wake_bytes(s, fd, 1) ? -1 : 1;
	/* The stranger has shut down its side before the whole ClientHello came. */
	if (poll(&p, 1, 0) != 0)
		return -1;
	return set_wake_bytes(s, fd, whole);
}

size_t stranger_peek_hello(const struct strangers *s, unsigned i,
			   uint8_t to[static CLIENT_HELLO_MAX])
{
	ssize_t n = recv(s->list[i].fd, to, CLIENT_HELLO_MAX, MSG_PEEK | MSG_DONTWAIT);
	size_t size;

	if (n < TLS_RECORD_HEAD + TLS_MESSAGE_HEAD)
		return 0;
	size = (size_t)(to[3] << 8 | to[4]);
	memmove(to, to + TLS_RECORD_HEAD, (size_t)n - TLS_RECORD_HEAD);
	if (size > (size_t)n - TLS_RECORD_HEAD || to[0] != TLS_CLIENT_HELLO ||
	    size != TLS_MESSAGE_HEAD + (size_t)(to[1] << 16 | to[2] << 8 | to[3]))
		return 0;
	return size;
}

int stranger_lane_hello(struct strangers *s, unsigned i, uint8_t to[static LANE_HELLO_SIZE])
{
	int fd = s->list[i].fd;
	ssize_t n = recv(fd, to, LANE_HELLO_SIZE, MSG_PEEK | MSG_DONTWAIT);
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == LANE_HELLO_SIZE)
		return set_wake_bytes(s, fd, 1) ? -1 : 1;
	/* It has shut down its side before the whole hello came. */
	if (n == 0 || poll(&p, 1, 0) != 0)
		return -1;
	return set_wake_bytes(s, fd, LANE_HELLO_SIZE);
}

int stranger_first_byte(const struct strangers *s, unsigned i)
{
	uint8_t first;
	ssize_t n = recv(s->list[i].fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	return n == 1 && first ? first : -1;
}

void stranger_refuse(const struct stranger *s)
{
	/* access_denied, fatal, which tls.c reports at the client. TLS sends alerts unencrypted
	 * before ServerHello. */
	static const uint8_t alert[] = {0x15, 3, 3, 0, 2, 2, 49};

	/* With unread input, closing would send a reset, which overtakes the alert. */
	while (recv(s->fd, NULL, CLIENT_HELLO_MAX, MSG_TRUNC | MSG_DONTWAIT) > 0)
		;
	(void)!send(s->fd, alert, sizeof alert, MSG_NOSIGNAL | MSG_DONTWAIT);
	shutdown(s->fd, SHUT_WR);
}

const char *stranger_text(const struct stranger *s, char *to, size_t size)
{
	union address a = {.sa = {.sa_family = AF_UNSPEC}};
	socklen_t len = sizeof a;

	if (getpeername(s->fd, &a.sa, &len) < 0)
		a.sa.sa_family = AF_UNSPEC;
	return address_text(&a, to, size);
}
