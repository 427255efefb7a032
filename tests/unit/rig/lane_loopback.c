/* SPDX-License-Identifier: Apache-2.0 */

#include "lane_loopback.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/io.h"
#include "lane/connect.h"
#include "lane/hello.h"
#include "lane/tcp/tcp_connect.h"

struct listeners {
	int fds[PAIR_LANES];
	union address at[PAIR_LANES];
};

static int listen_anywhere(in_addr_t host, union address *at)
{
	unsigned port;
	int fd;

	*at = (union address){.in4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)}};
	fd = tcp_listen(at, 0, 0, 0, &port);
	at->in4.sin_port = htons((uint16_t)port);
	return fd;
}

static int listen_all(in_addr_t host, void **state)
{
	struct listeners *s = calloc(1, sizeof *s);

	for (unsigned i = 0; i < PAIR_LANES; i++) {
		s->fds[i] = listen_anywhere(host, &s->at[i]);
		if (s->fds[i] < 0)
			return -1;
	}
	*state = s;
	return 0;
}

static int tcp_setup(void **state)
{
	return listen_all(INADDR_LOOPBACK, state);
}

/* The caller has the first loopback address, so the ends look like two hosts. */
static int far_setup(void **state)
{
	return listen_all(INADDR_LOOPBACK + 1, state);
}

static void tcp_teardown(void *state)
{
	struct listeners *s = state;

	for (unsigned i = 0; i < PAIR_LANES; i++)
		close_fd(s->fds[i]);
	free(s);
}

/* Wait until fd is readable: 0, or -1 when the lane was aborted or the time is over. */
static int wait_readable(struct lane *l, int fd, uint64_t deadline_ms)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
			      {.fd = lane_abort_fd(l), .events = POLLIN}};

	if (poll(p, 2, clock_left(deadline_ms)) > 0 && !lane_aborted(l))
		return 0;
	return fail_as(OUT_CONNECT, "nobody came");
}

/* As a porter does: read the caller's hello, and check that it is for this epoch. */
static int hear_caller(struct lane *l, uint32_t epoch, const struct lane_key *key, int fd,
		       uint64_t deadline_ms, struct hello_terms *terms)
{
	uint8_t bytes[LANE_HELLO_SIZE];

	for (size_t got = 0; got < sizeof bytes;) {
		ssize_t n;

		if (wait_readable(l, fd, deadline_ms))
			return -1;
		n = recv(fd, bytes + got, sizeof bytes - got, MSG_DONTWAIT);
		if (n <= 0)
			return fail_as(OUT_CONNECT, "the caller left");
		got += (size_t)n;
	}
	return hello_check(l, epoch, false, key, bytes, terms);
}

static int tcp_join(void *state, struct lane *l, uint32_t epoch, const struct lane_key *key,
		    uint64_t deadline_ms, struct wire **out)
{
	struct listeners *s = state;
	unsigned i = lane_index(l);
	struct hello_terms terms;

	/* The connecting end alternates, as both ends can compute. */
	if (lane_side_of(l) == ((i + epoch + lane_depth(l)) % 2 ? LANE_SOURCE : LANE_SINK))
		return tcp_dial(l, epoch, key, &s->at[i], 1, deadline_ms, out);
	for (;;) {
		int fd;

		if (wait_readable(l, s->fds[i], deadline_ms))
			return -1;
		fd = accept(s->fds[i], NULL, NULL);
		if (fd >= 0 && hear_caller(l, epoch, key, fd, deadline_ms, &terms) == 0)
			return tcp_take(l, epoch, key, fd, &terms, out);
		/* A caller that was aborted in the meantime. */
		close_fd(fd);
	}
}

const struct backend loopback_backend = {
	.name = "tcp",
	.setup = tcp_setup,
	.teardown = tcp_teardown,
	.join = tcp_join,
};

const struct backend two_hosts_backend = {
	.name = "tcp between two addresses",
	.setup = far_setup,
	.teardown = tcp_teardown,
	.join = tcp_join,
};
