/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/detour.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/carrier.h"
#include "cmd/far.h"
#include "cmd/login_turn.h"
#include "cmd/loopback.h"

enum { CARRIERS_MAX = DETOUR_POLLS - 2, SPARES = 2 };

struct detour {
	struct detour_way way;
	int listener; /* here, or -1 */
	int logins; /* login_turn.h */
	struct child keeper; /* of the port at way.from */
	unsigned char says[KEEPER_SAYS];
	size_t said;
	struct child carriers[CARRIERS_MAX];
	bool used[CARRIERS_MAX]; /* it has said so, or needn't */
	unsigned count;
};

static const struct child no_child = {.in = -1, .out = -1, .go = -1};

static void free_ended(struct detour *d)
{
	int status;

	for (unsigned i = 0; i < d->count; i++) {
		struct child *c = &d->carriers[i];

		if (!c->pid || !child_wait(c, &status, clock_ms()))
			continue;
		child_stop(c);
		d->carriers[i] = d->carriers[d->count - 1];
		d->used[i] = d->used[d->count - 1];
		d->count--;
		i--;
	}
}

/* Takes fd. */
static int add_carrier(struct detour *d, int fd)
{
	struct carrier c = {.way = &d->way, .fd = fd, .logins = d->logins};
	int rc;

	free_ended(d);
	if (d->count == CARRIERS_MAX) {
		close_fd(fd);
		return 0;
	}
	memcpy(c.token, d->says + 2, sizeof c.token);
	rc = child_fork(carrier_run, &c, "a lane over ssh", &d->carriers[d->count]);
	close_fd(fd);
	if (rc)
		return -1;
	d->used[d->count++] = fd >= 0;
	return 0;
}

static int keeper_start(struct detour *d)
{
	static const unsigned char zeros[TOKEN_SIZE];

	if (far_start(d->way.o, d->way.from, "--lane-listen", &d->keeper))
		return -1;
	if (write_full(d->keeper.in, zeros, sizeof zeros))
		return fail_as(OUT_START, "%s: %m", d->keeper.what);
	if (fcntl(d->keeper.out, F_SETFL, O_NONBLOCK) < 0)
		return fail_as(OUT_START, "%s: %m", d->keeper.what);
	return 0;
}

int detour_open(const struct detour_way *w, struct detour **out)
{
	struct detour *d = calloc(1, sizeof *d);
	unsigned port;

	if (!d)
		return fail_as(OUT_MEMORY, "make a detour: %m");
	d->way = *w;
	d->listener = -1;
	d->logins = login_turns_open();
	d->keeper = no_child;
	*out = d;
	if (w->from)
		return keeper_start(d);
	d->listener = listen_loopback(&port);
	if (d->listener < 0)
		return fail_as(OUT_SOCKET, "listen on this host's loopback: %m");
	return w->announce(w->ctx, port);
}

unsigned detour_polls(const struct detour *d, struct pollfd p[static DETOUR_POLLS])
{
	p[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
	p[1] = (struct pollfd){.fd = d->keeper.out, .events = POLLIN};
	for (unsigned i = 0; i < d->count; i++)
		p[2 + i] = (struct pollfd){.fd = d->used[i] ? -1 : d->carriers[i].out,
					   .events = POLLIN};
	return 2 + d->count;
}

static int on_listener(struct detour *d)
{
	int fd = accept_loopback(d->listener);

	if (fd < 0 && errno == EPERM)
		log_info("a process of another user connected to the port of lanes over ssh");
	return fd < 0 ? 0 : add_carrier(d, fd);
}

static int on_keeper(struct detour *d)
{
	ssize_t n = read(d->keeper.out, d->says + d->said, sizeof d->says - d->said);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		bool began = d->said == sizeof d->says;

		child_stop(&d->keeper);
		return began ? 0
			     : fail_as(OUT_START, "%s: no port for lanes there", d->keeper.what);
	}
	d->said += (size_t)n;
	if (d->said < sizeof d->says)
		return 0;
	for (unsigned i = 0; i < SPARES; i++) {
		if (add_carrier(d, -1))
			return -1;
	}
	return d->way.announce(d->way.ctx, (unsigned)(d->says[0] << 8 | d->says[1]));
}

int detour_turn(struct detour *d, const struct pollfd *p, unsigned n)
{
	unsigned begin = 0;

	for (unsigned i = 2; i < n; i++) {
		char byte;

		if (!p[i].revents || p[i].fd < 0)
			continue;
		/* In use, or ended: another one waits in its place. */
		d->used[i - 2] = true;
		if (read(p[i].fd, &byte, 1) == 1)
			begin++;
	}
	while (begin-- > 0) {
		if (add_carrier(d, -1))
			return -1;
	}
	if (n > 0 && p[0].revents && on_listener(d))
		return -1;
	return n > 1 && p[1].revents && d->keeper.out >= 0 ? on_keeper(d) : 0;
}

void detour_close(struct detour *d)
{
	if (!d)
		return;
	close_fd(d->listener);
	close_fd(d->logins);
	for (unsigned i = 0; i < d->count; i++)
		child_close_in(&d->carriers[i]);
	for (unsigned i = 0; i < d->count; i++)
		child_stop(&d->carriers[i]);
	child_stop(&d->keeper);
	free(d);
}
