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
	unsigned port; /* that was announced, 0: none yet */
	struct carried {
		struct child child;
		bool used; /* it has a connection of the connecting end */
		bool ended; /* it writes no more */
	} carriers[CARRIERS_MAX];
	unsigned count;
};

static const struct child no_child = {.in = -1, .out = -1, .go = -1};

static void free_ended(struct detour *d)
{
	int status;

	for (unsigned i = 0; i < d->count; i++) {
		struct child *c = &d->carriers[i].child;

		if (!c->pid || !child_wait(c, &status, clock_ms()))
			continue;
		child_stop(c);
		d->carriers[i] = d->carriers[--d->count];
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
	d->carriers[d->count] = (struct carried){.used = fd >= 0};
	rc = child_fork(carrier_run, &c, "a lane over ssh", &d->carriers[d->count].child);
	close_fd(fd);
	if (rc)
		return -1;
	d->count++;
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

	if (!d)
		return fail_as(OUT_MEMORY, "make a detour: %m");
	d->way = *w;
	d->listener = -1;
	d->logins = login_turns_open();
	d->keeper = no_child;
	*out = d;
	if (w->from)
		return keeper_start(d);
	d->listener = listen_loopback(&d->port);
	if (d->listener < 0)
		return fail_as(OUT_SOCKET, "listen on this host's loopback: %m");
	return w->announce(w->ctx, d->port, "");
}

unsigned detour_polls(const struct detour *d, struct pollfd p[static DETOUR_POLLS])
{
	p[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
	p[1] = (struct pollfd){.fd = d->keeper.out, .events = POLLIN};
	for (unsigned i = 0; i < d->count; i++)
		p[2 + i] =
			(struct pollfd){.fd = d->carriers[i].ended ? -1 : d->carriers[i].child.out,
					.events = POLLIN};
	return 2 + d->count;
}

static int on_listener(struct detour *d)
{
	int fd = accept_loopback(d->listener);

	if (fd < 0) {
		if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || errno == EPERM)
			return 0;
		return fail_as(OUT_SOCKET, "take a lane's connection on this host's loopback: %m");
	}
	switch (loopback_peer(fd)) {
	case LOOPBACK_OURS:
		return add_carrier(d, fd);
	case LOOPBACK_FOREIGN:
		log_info("a process of another user connected to the port of lanes over ssh");
		break;
	case LOOPBACK_GONE:
		break;
	case LOOPBACK_UNKNOWN:
		fail_as(OUT_SOCKET, "find out whose connection to this host's loopback it is: %m");
		close_fd(fd);
		return d->way.announce(d->way.ctx, d->port, failed()->text);
	}
	close_fd(fd);
	return 0;
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
	d->port = (unsigned)(d->says[0] << 8 | d->says[1]);
	return d->way.announce(d->way.ctx, d->port, "");
}

/* Without a carrier the connecting end's connections wait in vain. */
static bool has_carrier(const struct detour *d)
{
	for (unsigned i = 0; i < d->count; i++) {
		if (!d->carriers[i].ended)
			return true;
	}
	return d->listener >= 0;
}

/* What a carrier writes, or its end: 0 or -1.  began: another one waits in its place. */
static int hear_carrier(struct detour *d, struct carried *c, unsigned *began)
{
	char text[2 + FAIL_TEXT_MAX];
	const char *at = text;
	ssize_t n = read(c->child.out, text, sizeof text - 1);

	if (n < 0 && errno == EINTR)
		return 0;
	text[n > 0 ? n : 0] = '\0';
	c->ended = n <= 0;
	if (*at == CARRIER_USED) {
		*began += !c->used;
		c->used = true;
		at++;
	}
	if (*at != CARRIER_FAILED)
		return 0;
	c->ended = true;
	log_debug("a lane over ssh: %s", at + 1);
	if (!has_carrier(d) && *began == 0)
		return fail_as(OUT_START, "carry a lane over ssh: %s", at + 1);
	return d->way.announce(d->way.ctx, d->port, at + 1);
}

int detour_turn(struct detour *d, const struct pollfd *p, unsigned n)
{
	unsigned began = 0;

	for (unsigned i = 2; i < n; i++) {
		if (p[i].revents && p[i].fd >= 0 && hear_carrier(d, &d->carriers[i - 2], &began))
			return -1;
	}
	while (began-- > 0) {
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
		child_close_in(&d->carriers[i].child);
	for (unsigned i = 0; i < d->count; i++)
		child_stop(&d->carriers[i].child);
	child_stop(&d->keeper);
	free(d);
}
