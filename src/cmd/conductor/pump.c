/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/io.h"

enum { PUMP_SIZE = 256 << 10 };

/* One direction. */
struct pump_flow {
	int from, to;
	bool ended; /* `from' is at its end */
	bool closed; /* `to' is closed for writing */
	size_t start, end;
	char bytes[PUMP_SIZE];
};

static int read_flow(struct pump_flow *w)
{
	ssize_t n = read(w->from, w->bytes, sizeof w->bytes);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		w->ended = true;
	w->end = (size_t)n;
	return 0;
}

static int write_flow(struct pump_flow *w)
{
	ssize_t n = write(w->to, w->bytes + w->start, w->end - w->start);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	w->start += (size_t)n;
	if (w->start == w->end)
		w->start = w->end = 0;
	return 0;
}

/* Closes `to' for writing. A socket stays open for its other direction. */
static void close_flow(struct pump_flow *w)
{
	w->closed = true;
	if (shutdown(w->to, SHUT_WR) < 0 && errno == ENOTSOCK) {
		close_fd(w->to);
		w->to = -1;
	}
}

static int step_flow(struct pump_flow *w, short from_events, short to_events)
{
	if (w->end == 0 && !w->ended && from_events && read_flow(w))
		return -1;
	if (w->end > 0 && (to_events || from_events) && write_flow(w))
		return -1;
	if (w->end == 0 && w->ended && !w->closed)
		close_flow(w);
	return 0;
}

static int pump_loop(struct pump_flow *ways, int watch)
{
	while (!ways[0].closed || !ways[1].closed) {
		struct pollfd p[5] = {{.fd = watch, .events = 0}};

		for (int i = 0; i < 2; i++) {
			struct pump_flow *w = &ways[i];
			bool full = w->end > 0;

			p[1 + i] = (struct pollfd){.fd = full || w->ended ? -1 : w->from,
						   .events = POLLIN};
			p[3 + i] = (struct pollfd){.fd = full ? w->to : -1, .events = POLLOUT};
		}
		if (poll(p, 5, -1) < 0 && errno != EINTR)
			return -1;
		if (p[0].revents)
			return 0;
		for (int i = 0; i < 2; i++) {
			if (step_flow(&ways[i], p[1 + i].revents, p[3 + i].revents))
				return -1;
		}
	}
	return 0;
}

int pump_run(const struct pump_side *a, const struct pump_side *b, int watch)
{
	static struct pump_flow ways[2];
	const int fds[] = {a->in, a->out, b->in, b->out};
	int rc;

	ways[0] = (struct pump_flow){.from = a->in, .to = b->out};
	ways[1] = (struct pump_flow){.from = b->in, .to = a->out};
	for (int i = 0; i < 4; i++)
		fcntl(fds[i], F_SETFL, O_NONBLOCK);
	rc = pump_loop(ways, watch);
	close_fd(ways[0].to);
	close_fd(ways[1].to);
	if (a->in != a->out)
		close_fd(a->in);
	if (b->in != b->out)
		close_fd(b->in);
	return rc;
}
