/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/channel.h"
#include "session/channel/channel_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/backoff.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"

/* ---- both kinds ----------------------------------------------------------------------- */

void channel_init(struct channel *c, const struct channel_ops *ops, int in, int out)
{
	c->ops = ops;
	c->in = in;
	c->out = out;
	c->write_error = 0;
	channel_set_peer(c, "the peer");
}

int descriptor_unblock(int fd, int *old)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return fail_as(OUT_SOCKET, "make descriptor %d non-blocking: %m", fd);
	if (old)
		*old = flags;
	return 0;
}

int channel_broken(const struct channel *c, const char *what)
{
	/* ETIMEDOUT: the kernel itself gave up on a host that does not answer. */
	enum outcome code = errno == ETIMEDOUT ? OUT_TIMEOUT : OUT_PEER_LOST;

	return fail_as(code, "%s %s: %m", what, c->peer);
}

int channel_handshake(struct channel *c)
{
	return c->ops->handshake(c);
}

void channel_set_peer(struct channel *c, const char *name)
{
	snprintf(c->peer, sizeof c->peer, "%s", name);
}

int channel_secret(struct channel *c, uint8_t to[static LANE_SECRET])
{
	return c->ops->secret(c, to);
}

ssize_t channel_read(struct channel *c, void *to, size_t len, bool *eof)
{
	*eof = false;
	return len ? c->ops->read(c, to, len, eof) : 0;
}

ssize_t channel_write(struct channel *c, const void *from, size_t len)
{
	ssize_t n;

	if (c->write_error) {
		errno = c->write_error;
		return channel_broken(c, "write to");
	}
	n = len ? c->ops->write(c, from, len) : 0;
	if (n < 0)
		c->write_error = errno ? errno : EPIPE;
	return n;
}

bool channel_is_cut(const struct channel *c)
{
	return c->write_error;
}

int channel_polls(struct channel *c, bool want_write, struct pollfd p[static 2])
{
	return c->ops->polls(c, want_write, p);
}

static bool get_address(int fd, int (*get)(int, struct sockaddr *, socklen_t *), union address *to)
{
	socklen_t len = sizeof *to;

	memset(to, 0, sizeof *to);
	return get(fd, &to->sa, &len) == 0 &&
	       (to->sa.sa_family == AF_INET || to->sa.sa_family == AF_INET6);
}

bool channel_addresses(const struct channel *c, union address *local, union address *peer)
{
	return get_address(c->in, getsockname, local) && get_address(c->in, getpeername, peer);
}

uint32_t channel_rtt_us(const struct channel *c)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	if (getsockopt(c->out, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return 0;
	/* UINT32_MAX: not measured yet. */
	return info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt;
}

size_t channel_unsent(const struct channel *c)
{
	union address a;
	int left = 0;

	/* A Unix socket counts what the peer has not read, and the peer may never read it. */
	if (!get_address(c->out, getsockname, &a) || ioctl(c->out, SIOCOUTQ, &left) != 0)
		return 0;
	return left > 0 ? (size_t)left : 0;
}

void channel_set_timeout(const struct channel *c, int timeout_ms)
{
	backoff_bound(c->out, timeout_ms);
}

bool channel_flush(const struct channel *c, uint64_t deadline_ms)
{
	struct timespec pause = {.tv_nsec = 500000};
	struct pollfd p = {.fd = c->out};

	while (channel_unsent(c) > 0) {
		int broken = ppoll(&p, 1, &pause, NULL);

		/* What a connection that was reset had not sent stays unsent. */
		if (clock_left(deadline_ms) == 0 || broken > 0)
			return false;
		if (broken < 0)
			nanosleep(&pause, NULL);
		if (pause.tv_nsec < 16000000)
			pause.tv_nsec *= 2;
	}
	return true;
}

void channel_free(struct channel *c)
{
	int err = errno;

	if (c)
		c->ops->free(c);
	errno = err;
}

/* ---- a pair of descriptors ---------------------------------------------------------- */

struct fd_channel {
	struct channel channel;
	int in_flags, out_flags;
};

static int fd_channel_handshake(struct channel *c)
{
	(void)c;
	return 1;
}

static int fd_channel_secret(struct channel *c, uint8_t *to)
{
	(void)to;
	return fail_as(OUT_PROTOCOL, "derive a secret: the connection to %s is not TLS", c->peer);
}

static bool would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK;
}

static ssize_t fd_channel_read(struct channel *c, void *to, size_t len, bool *eof)
{
	ssize_t n;

	do
		n = read(c->in, to, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return would_block() ? 0 : channel_broken(c, "read from");
	*eof = n == 0;
	return n;
}

static ssize_t fd_channel_write(struct channel *c, const void *from, size_t len)
{
	ssize_t n;

	do
		n = write(c->out, from, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return would_block() ? 0 : channel_broken(c, "write to");
	return n;
}

static int fd_channel_polls(struct channel *c, bool want_write, struct pollfd *p)
{
	p[0] = (struct pollfd){.fd = c->in, .events = POLLIN};
	if (!want_write)
		return 1;
	if (c->in == c->out) {
		p[0].events |= POLLOUT;
		return 1;
	}
	p[1] = (struct pollfd){.fd = c->out, .events = POLLOUT};
	return 2;
}

/* O_NONBLOCK belongs to the open file, which may be another process's terminal: restore it. */
static void fd_channel_free(struct channel *c)
{
	struct fd_channel *p = (struct fd_channel *)c;

	if (c->out != c->in) {
		fcntl(c->out, F_SETFL, p->out_flags);
		close_fd(c->out);
	}
	fcntl(c->in, F_SETFL, p->in_flags);
	close_fd(c->in);
	free(p);
}

static const struct channel_ops pair_ops = {
	.handshake = fd_channel_handshake,
	.secret = fd_channel_secret,
	.read = fd_channel_read,
	.write = fd_channel_write,
	.polls = fd_channel_polls,
	.free = fd_channel_free,
};

int channel_over_fds(int in, int out, struct channel **out_ch)
{
	struct fd_channel *p = calloc(1, sizeof *p);

	if (!p) {
		fail_as(OUT_MEMORY, "create a control channel: %m");
		goto fail;
	}
	channel_init(&p->channel, &pair_ops, in, out);
	if (descriptor_unblock(in, &p->in_flags) != 0)
		goto fail;
	p->out_flags = p->in_flags;
	if (out != in && descriptor_unblock(out, &p->out_flags) != 0)
		goto fail;
	*out_ch = &p->channel;
	return 0;
fail:
	free(p);
	close_fd(in);
	if (out != in)
		close_fd(out);
	return -1;
}
