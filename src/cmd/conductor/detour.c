/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/detour.h"

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
#include "cmd/conductor/carrier.h"
#include "cmd/conductor/far_command.h"
#include "cmd/conductor/login_turn.h"
#include "cmd/conductor/loopback.h"

enum {
	CARRIERS_MAX = DETOUR_POLLS - 2,
	SPARES = 2,
	/* A failed spare is started again after RESTART_MS; each further pause is twice as long. */
	RESTART_MS = 1000,
	RESTARTS_MAX = 6,
	/* While descriptors are exhausted, connections wait in the backlog. */
	SHORTAGE_PAUSE_MS = 200, /* until the next accept */
	SHORTAGE_MS = 5000, /* a shortage of this length fails the detour */
	SHORTAGE_OVER_MS = 2000, /* a shortage has ended if the last one is this old */
	CARRIER_END_MS = 500,
};

struct detour {
	struct detour_way way;
	int listener; /* on this host, or -1 */
	int logins; /* login_turn.h */
	struct child keeper; /* of the port at way.from */
	unsigned char reply[KEEPER_REPLY]; /* what the keeper sends: port and token */
	size_t reply_len; /* bytes that have arrived */
	unsigned port; /* as announced; 0: none yet */
	struct carried {
		struct child child;
		bool used; /* it has accepted a connection of the connecting end */
		bool ended; /* its output has ended */
	} carriers[CARRIERS_MAX];
	unsigned count;
	unsigned used_spares; /* spares to replace in this call of detour_handle() */
	bool worked; /* a spare once accepted a connection */
	unsigned restarts; /* since a lane last took a spare, or lost its carrier */
	uint64_t restart_ms; /* when to start missing spares (clock_ms); 0: never */
	uint64_t accept_ms; /* when to accept connections again (clock_ms); 0: now */
	uint64_t shortage_start_ms,
		shortage_ms; /* first and last time that descriptors were exhausted */
};

static const struct child no_child = {.in = -1, .out = -1, .go = -1};

/* Only carriers whose output has ended: its last bytes are the reason of a failure. */
static void free_ended_carriers(struct detour *d)
{
	int status;

	for (unsigned i = 0; i < d->count; i++) {
		struct child *c = &d->carriers[i].child;

		if (!d->carriers[i].ended || (c->pid && !child_wait(c, &status, clock_ms())))
			continue;
		child_stop(c);
		d->carriers[i] = d->carriers[--d->count];
		i--;
	}
}

/* Owns fd, even if it fails. */
static int add_carrier(struct detour *d, int fd)
{
	struct carrier c = {.way = &d->way, .fd = fd, .logins = d->logins};
	int rc;

	free_ended_carriers(d);
	if (d->count == CARRIERS_MAX) {
		close_fd(fd);
		return fail_as(OUT_START, "more than %d lanes over ssh are not supported",
			       CARRIERS_MAX);
	}
	memcpy(c.token, d->reply + 2, sizeof c.token);
	d->carriers[d->count] = (struct carried){.used = fd >= 0};
	rc = child_fork(carrier_run, &c, "a lane over ssh", &d->carriers[d->count].child);
	close_fd(fd);
	if (rc)
		return -1;
	d->count++;
	return 0;
}

static int start_keeper(struct detour *d)
{
	if (far_start(d->way.o, d->way.from, "--lane-listen", &d->keeper))
		return -1;
	if (write_full(d->keeper.in, keeper_request, sizeof keeper_request))
		return fail_as(OUT_START, "%s: %m", d->keeper.what);
	if (fcntl(d->keeper.out, F_SETFL, O_NONBLOCK) < 0)
		return fail_as(OUT_START, "%s: %m", d->keeper.what);
	return 0;
}

int detour_open(const struct detour_way *w, struct detour **out)
{
	struct detour *d = calloc(1, sizeof *d);

	if (!d)
		return fail_as(OUT_MEMORY, "set up lanes over ssh: %m");
	d->way = *w;
	d->listener = -1;
	d->logins = login_turns_open();
	d->keeper = no_child;
	*out = d;
	if (w->from)
		return start_keeper(d);
	d->listener = loopback_listen(&d->port);
	if (d->listener < 0)
		return fail_as(OUT_SOCKET, "listen on this host's loopback: %m");
	return w->announce(w->ctx, d->port, "");
}

unsigned detour_polls(const struct detour *d, struct pollfd p[static DETOUR_POLLS])
{
	p[0] = (struct pollfd){.fd = d->accept_ms ? -1 : d->listener, .events = POLLIN};
	p[1] = (struct pollfd){.fd = d->keeper.out, .events = POLLIN};
	for (unsigned i = 0; i < d->count; i++)
		p[2 + i] =
			(struct pollfd){.fd = d->carriers[i].ended ? -1 : d->carriers[i].child.out,
					.events = POLLIN};
	return 2 + d->count;
}

uint64_t detour_due(const struct detour *d)
{
	if (!d->accept_ms || !d->restart_ms)
		return d->accept_ms | d->restart_ms;
	return d->accept_ms < d->restart_ms ? d->accept_ms : d->restart_ms;
}

static int announce_failure(struct detour *d)
{
	log_debug("a lane over ssh: %s", failed()->text);
	return d->way.announce(d->way.ctx, d->port, failed()->text);
}

/* ---- connections on this host --------------------------------------------------------------- */

/* Descriptors are exhausted. Returns 0 to accept again later, or -1 if the shortage lasts. */
static int wait_for_descriptor(struct detour *d)
{
	uint64_t now = clock_ms();

	if (now - d->shortage_ms > SHORTAGE_OVER_MS)
		d->shortage_start_ms = now;
	d->shortage_ms = now;
	if (now - d->shortage_start_ms > SHORTAGE_MS)
		return -1;
	d->accept_ms = now + SHORTAGE_PAUSE_MS;
	return announce_failure(d);
}

static int handle_accept_error(struct detour *d)
{
	int err = errno;

	if (err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPERM)
		return 0;
	fail_as(OUT_SOCKET, "accept a lane's connection on this host's loopback: %m");
	return lacks_room_for_fd(err) ? wait_for_descriptor(d) : -1;
}

static int accept_lane_connection(struct detour *d)
{
	int fd = loopback_accept(d->listener);

	if (fd < 0)
		return handle_accept_error(d);
	switch (loopback_peer(fd)) {
	case LOOPBACK_OURS:
		return add_carrier(d, fd) ? announce_failure(d) : 0;
	case LOOPBACK_FOREIGN:
		log_info("rejected a connection of another user to the loopback port for lanes "
			 "over ssh");
		break;
	case LOOPBACK_GONE:
		break;
	case LOOPBACK_UNKNOWN:
		fail_as(OUT_SOCKET, "find the owner of a connection to this host's loopback: %m");
		close_fd(fd);
		return announce_failure(d);
	}
	close_fd(fd);
	return 0;
}

/* ---- spares at a far host ------------------------------------------------------------------- */

static unsigned count_used(const struct detour *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->count; i++)
		n += !d->carriers[i].ended && d->carriers[i].used;
	return n;
}

static unsigned count_spares(const struct detour *d)
{
	unsigned n = d->used_spares;

	for (unsigned i = 0; i < d->count; i++)
		n += !d->carriers[i].ended && !d->carriers[i].used;
	return n;
}

/* Call when a lane has taken a spare, or lost its carrier and will take one. Replaces failed spares
 * soon. */
static void plan_restart(struct detour *d)
{
	uint64_t soon = clock_ms() + RESTART_MS;

	d->restarts = 0;
	if (d->listener >= 0 || count_spares(d) >= SPARES)
		return;
	if (!d->restart_ms || d->restart_ms > soon)
		d->restart_ms = soon;
}

/* A spare failed, and there is no other one: ends the wait of connections at the far port, which
 * may be as long as a login takes. The connecting end tries again, for as long as --connect-timeout
 * says. */
static int close_waiting(const struct detour *d)
{
	if (d->listener >= 0 || d->keeper.in < 0 || count_spares(d) > 0)
		return 0;
	/* A keeper that has ended closed them, too. */
	if (write_full(d->keeper.in, "c", 1) && errno != EPIPE)
		return fail_as(OUT_START, "%s: %m", d->keeper.what);
	return 0;
}

/* A carrier failed, for the reason in failed(). The connecting end's new lanes wait for a spare; if
 * none starts in time, that end reports the reason. */
static int handle_carrier_failure(struct detour *d, bool spare)
{
	/* If no spare ever worked, another attempt would fail too. */
	if (spare && d->worked && !d->restart_ms && d->restarts < RESTARTS_MAX)
		d->restart_ms = clock_ms() + ((uint64_t)RESTART_MS << d->restarts++);
	if (d->listener < 0 && !d->restart_ms && count_spares(d) + count_used(d) == 0)
		return fail_as(OUT_START, "carry a lane over ssh: %s", failed()->text);
	return announce_failure(d) || (spare && close_waiting(d)) ? -1 : 0;
}

static int start_spare(struct detour *d)
{
	return add_carrier(d, -1) ? handle_carrier_failure(d, true) : 0;
}

static int restart_spares(struct detour *d)
{
	d->restart_ms = 0;
	for (unsigned n = count_spares(d); n < SPARES; n++) {
		if (start_spare(d))
			return -1;
	}
	return 0;
}

static int read_keeper(struct detour *d)
{
	ssize_t n = read(d->keeper.out, d->reply + d->reply_len, sizeof d->reply - d->reply_len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		bool complete = d->reply_len == sizeof d->reply;

		if (n < 0)
			fail_as(OUT_START, "%s: read the loopback port for lanes: %m",
				d->keeper.what);
		else
			fail_as(OUT_START, "%s: no loopback port for lanes on that host",
				d->keeper.what);
		child_stop(&d->keeper);
		return complete ? 0 : -1;
	}
	d->reply_len += (size_t)n;
	if (d->reply_len < sizeof d->reply)
		return 0;
	for (unsigned i = 0; i < SPARES; i++) {
		if (add_carrier(d, -1))
			return -1;
	}
	d->port = (unsigned)(d->reply[0] << 8 | d->reply[1]);
	return d->way.announce(d->way.ctx, d->port, "");
}

static int fail_silent_carrier(struct carried *c)
{
	char how[64] = "closed its output";
	int status;

	if (child_wait(&c->child, &status, clock_ms() + CARRIER_END_MS))
		child_end_text(status, how, sizeof how);
	return fail_as(OUT_START, "the process that carries the lane %s", how);
}

/* Handles the output of a carrier, or its end. */
static int read_carrier(struct detour *d, struct carried *c)
{
	char text[2 + FAIL_TEXT_MAX];
	const char *at = text;
	ssize_t n = read(c->child.out, text, sizeof text - 1);

	if (n < 0 && errno == EINTR)
		return 0;
	text[n > 0 ? n : 0] = '\0';
	if (*at == CARRIER_USED) {
		d->used_spares += !c->used;
		c->used = d->worked = true;
		plan_restart(d);
		at++;
	}
	c->ended = n <= 0 || *at == CARRIER_FAILED;
	if (!c->ended)
		return 0;
	if (c->used)
		plan_restart(d);
	if (*at == CARRIER_FAILED)
		fail_as(OUT_START, "%s", at + 1);
	else if (!c->used)
		fail_silent_carrier(c);
	else
		return 0;
	return handle_carrier_failure(d, !c->used);
}

int detour_handle(struct detour *d, const struct pollfd *p, unsigned n)
{
	for (unsigned i = 2; i < n; i++) {
		if (p[i].revents && p[i].fd >= 0 && read_carrier(d, &d->carriers[i - 2]))
			return -1;
	}
	for (; d->used_spares > 0; d->used_spares--) {
		if (start_spare(d))
			return -1;
	}
	if (d->restart_ms && clock_left(d->restart_ms) == 0 && restart_spares(d))
		return -1;
	if (d->accept_ms && clock_left(d->accept_ms) == 0)
		d->accept_ms = 0;
	if (n > 0 && p[0].revents && accept_lane_connection(d))
		return -1;
	return n > 1 && p[1].revents && d->keeper.out >= 0 ? read_keeper(d) : 0;
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
