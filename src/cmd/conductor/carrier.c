/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/carrier.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "cmd/conductor/daemon_call.h"
#include "cmd/conductor/far_command.h"
#include "cmd/conductor/login_turn.h"
#include "cmd/conductor/loopback.h"
#include "cmd/conductor/pump.h"

enum { SSH_EXIT_MS = 500 };

/* Waits until fd is readable. Returns 0, or -1 if the conductor is gone. */
static int wait_readable(int fd, int in)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = in, .events = 0}};

	while (poll(p, 2, -1) < 0) {
		if (errno != EINTR)
			return -1;
	}
	return p[1].revents ? -1 : 0;
}

/* ssh ended before it carried a lane. */
static int fail_ssh(struct child *ssh)
{
	char how[64] = "closed its output";
	int status;

	if (child_wait(ssh, &status, clock_ms() + SSH_EXIT_MS))
		child_end_text(status, how, sizeof how);
	return fail_as(OUT_START, "%s %s before it could carry a lane", ssh->what, how);
}

/* Opens the connecting end's side of the lane. */
static int open_connecting_side(struct carrier *c, int in, struct pump_side *side,
				struct child *ssh)
{
	unsigned char ready;
	uint64_t began;
	int status;

	if (!c->way->from) {
		*side = (struct pump_side){.in = c->fd, .out = c->fd};
		return 0;
	}
	began = login_turn_begin(c->logins);
	if (far_start(c->way->o, c->way->from, "--lane-listen", ssh))
		return -1;
	if (write_full(ssh->in, c->token, sizeof c->token))
		return errno == EPIPE ? fail_ssh(ssh) : fail_as(OUT_START, "%s: %m", ssh->what);
	if (wait_readable(ssh->out, in) || read_full(ssh->out, &ready, 1) != 1)
		return fail_ssh(ssh);
	login_turn_end(c->logins, began);
	/* The connecting end sends first. */
	if (wait_readable(ssh->out, in))
		return fail_as(OUT_PEER_LOST, "the conductor is gone");
	/* Readable, but nothing there: the output is at its end. A connection that was closed at
	 * once also ends it, but ssh does not fail then. */
	if (count_readable(ssh->out) == 0 && child_wait(ssh, &status, clock_ms() + SSH_EXIT_MS) &&
	    status)
		return fail_ssh(ssh);
	*side = (struct pump_side){.in = ssh->out, .out = ssh->in};
	return 0;
}

/* Opens the listening end's side of the lane. */
static int open_listening_side(struct carrier *c, int in, struct pump_side *side, struct child *ssh)
{
	const unsigned char port[2] = {(unsigned char)(c->way->port >> 8),
				       (unsigned char)c->way->port};
	unsigned char error;
	uint64_t began;

	if (c->way->daemon) {
		const struct options *o = c->way->o;
		uint64_t until = clock_ms() + (uint64_t)o->network.connect_timeout_ms;
		int fd = daemon_connect_lane(o, c->way->daemon, until);

		if (fd < 0)
			return -1;
		*side = (struct pump_side){.in = fd, .out = fd};
		return 0;
	}
	if (!c->way->to) {
		int fd = loopback_connect(c->way->port);

		if (fd < 0)
			return fail_as(OUT_CONNECT, "connect to port %u of this host: %m",
				       c->way->port);
		*side = (struct pump_side){.in = fd, .out = fd};
		return 0;
	}
	began = login_turn_begin(c->logins);
	if (far_start(c->way->o, c->way->to, "--lane", ssh))
		return -1;
	if (write_full(ssh->in, port, sizeof port) || wait_readable(ssh->out, in) ||
	    read_full(ssh->out, &error, 1) != 1)
		return fail_ssh(ssh);
	login_turn_end(c->logins, began);
	errno = error;
	if (error)
		return fail_as(OUT_CONNECT, "%s: connect to port %u on that host: %m", ssh->what,
			       c->way->port);
	*side = (struct pump_side){.in = ssh->out, .out = ssh->in};
	return 0;
}

static void write_failure(int out)
{
	char text[1 + FAIL_TEXT_MAX] = {CARRIER_FAILED};

	memcpy(text + 1, failed()->text, FAIL_TEXT_MAX);
	(void)!write(out, text, strlen(text));
}

int carrier_run(void *carrier, int in, int out)
{
	static const char used = CARRIER_USED;

	struct carrier *c = carrier;
	struct child ssh[2] = {{.in = -1, .out = -1, .go = -1}, {.in = -1, .out = -1, .go = -1}};
	struct pump_side from, to;
	int rc = 1;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (open_connecting_side(c, in, &from, &ssh[0])) {
		write_failure(out);
		goto out;
	}
	if (write(out, &used, 1) != 1)
		goto out;
	if (open_listening_side(c, in, &to, &ssh[1])) {
		write_failure(out);
		goto out;
	}
	rc = pump_run(&from, &to, in) ? 1 : 0;
	if (rc && errno != ECONNRESET && errno != EPIPE) {
		fail_as(OUT_SOCKET, "relay the bytes of a lane: %m");
		write_failure(out);
	}
	/* pump_run() closed them. */
	ssh[0].in = ssh[0].out = ssh[1].in = ssh[1].out = -1;
out:
	child_stop(&ssh[0]);
	child_stop(&ssh[1]);
	return rc;
}
