/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/bridge_lane.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/secret.h"
#include "cmd/conductor/daemon_call.h"
#include "cmd/conductor/pump.h"
#include "cmd/process/process.h"
#include "session/channel/openssl.h"

enum {
	PAUSE_FIRST_MS = 20, /* before an attempt is repeated; then twice as long */
	PAUSE_MOST_MS = 200,
};
/* CONDUCTOR_GONE: nobody needs this lane any more. */
enum link_result { LINK_DONE, LINK_FAILED, CONDUCTOR_GONE };

struct link {
	const struct bridge_lane *lane;
	int in, out;
	uint32_t epoch; /* of the next attempt */
	bool used; /* it had a wire */
	bool warned; /* that this process could not relay */
	uint64_t give_up_ms; /* clock_ms */
	int fds[2]; /* to the source, and to the sink; -1: none */
};

/* Waits until fd (-1: none) is ready, or deadline_ms (0: without limit). */
static enum link_result wait_ready(struct link *l, int fd, short events, uint64_t deadline_ms)
{
	struct pollfd p[2] = {{.fd = l->in, .events = 0}, {.fd = fd, .events = events}};
	int rc;

	while ((rc = poll(p, 2, deadline_ms ? clock_left(deadline_ms) : -1)) < 0) {
		if (errno == EINTR)
			continue;
		fail_as(OUT_SOCKET, "wait for a lane: %m");
		return LINK_FAILED;
	}
	if (p[0].revents)
		return CONDUCTOR_GONE;
	if (rc > 0)
		return LINK_DONE;
	fail_as(OUT_CONNECT, "%s does not answer", l->lane->way->names[fd == l->fds[1]]);
	return LINK_FAILED;
}

/* Keeps the failure that it follows. */
static enum link_result pause_link(struct link *l, unsigned times)
{
	uint64_t until = clock_ms() + clock_doubled(PAUSE_FIRST_MS, times, PAUSE_MOST_MS);
	struct failure why = *failed();
	bool gone = wait_ready(l, -1, 0, until) == CONDUCTOR_GONE;

	fail_again(&why);
	return gone ? CONDUCTOR_GONE : LINK_DONE;
}

/* Connects to the port of one daemon: again and again, so that the other one, which may have its
 * wire already, sees no break. */
static enum link_result dial_end(struct link *l, int end)
{
	const struct bridge_way *w = l->lane->way;

	for (unsigned times = 0; clock_left(l->give_up_ms) > 0; times++) {
		l->fds[end] = daemon_connect_lane(w->o, w->urls[end], l->give_up_ms);
		if (l->fds[end] >= 0)
			return LINK_DONE;
		if (pause_link(l, times) == CONDUCTOR_GONE)
			return CONDUCTOR_GONE;
	}
	return LINK_FAILED;
}

/* Whether the next attempt may have another result. A host or firewall on the way reports what it
 * likes, and the kernel passes it on in place of ETIMEDOUT. */
static bool is_broken_connection(int err)
{
	return err == ECONNRESET || err == EPIPE || err == ETIMEDOUT || err == EHOSTUNREACH ||
	       err == ENETUNREACH || err == ECONNREFUSED || err == EHOSTDOWN || err == EACCES ||
	       err == ENOPROTOOPT;
}

/* Reads the answer of an end. A lane's thread may be busy for any length of time before it answers,
 * but not when the session begins. */
static enum link_result read_answer(struct link *l, int end, uint8_t to[static LANE_HELLO_SIZE])
{
	uint64_t deadline_ms = l->used || l->lane->index > 0 ? 0 : l->give_up_ms;
	size_t len = 0;

	while (len < LANE_HELLO_SIZE) {
		enum link_result rc = wait_ready(l, l->fds[end], POLLIN, deadline_ms);
		ssize_t n;

		if (rc != LINK_DONE)
			return rc;
		n = read(l->fds[end], to + len, LANE_HELLO_SIZE - len);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0) {
			if (n < 0)
				fail_as(is_broken_connection(errno) ? OUT_CONNECT : OUT_SOCKET,
					"receive from %s: %m", l->lane->way->names[end]);
			else
				fail_as(OUT_CONNECT, "%s closed the connection without an answer",
					l->lane->way->names[end]);
			return LINK_FAILED;
		}
		len += (size_t)n;
	}
	return LINK_DONE;
}

static enum link_result join_end(struct link *l, int end, uint32_t epoch)
{
	enum lane_side side = end == 0 ? LANE_SOURCE : LANE_SINK;
	const struct between *b = l->lane->between;
	uint8_t hello[LANE_HELLO_SIZE];
	enum link_result rc = dial_end(l, end);

	if (rc != LINK_DONE)
		return rc;
	between_write_hello(b, side, l->lane->index, epoch, hello);
	if (write_full(l->fds[end], hello, sizeof hello)) {
		fail_as(OUT_CONNECT, "%s: %m", l->lane->way->names[end]);
		return LINK_FAILED;
	}
	rc = read_answer(l, end, hello);
	if (rc == LINK_DONE && between_check_hello(b, side, l->lane->index, epoch, hello))
		return LINK_FAILED;
	return rc;
}

static void close_link(struct link *l)
{
	for (int i = 0; i < 2; i++) {
		close_fd(l->fds[i]);
		l->fds[i] = -1;
	}
}

/*
 * The source answers only when the fence of its last wire is complete, and only then the sink gets
 * its hello. So no end has a wire of an epoch while the other one still waits for the end of an
 * earlier one.
 */
static enum link_result attempt_link(struct link *l)
{
	uint32_t epoch = l->epoch++;
	enum link_result rc = join_end(l, 0, epoch);

	if (rc == LINK_DONE) {
		/* That may have taken any time. */
		if (l->used || l->lane->index > 0)
			l->give_up_ms = clock_ms() + (uint64_t)l->lane->way->o->network.timeout_ms;
		rc = join_end(l, 1, epoch);
	}
	if (rc != LINK_DONE)
		close_link(l);
	return rc;
}

static enum link_result make_link(struct link *l)
{
	const struct network_options *n = &l->lane->way->o->network;
	enum link_result rc;

	l->give_up_ms = clock_ms() + (uint64_t)(l->used ? n->timeout_ms : n->connect_timeout_ms);
	for (unsigned times = 0; (rc = attempt_link(l)) == LINK_FAILED; times++) {
		if (failed()->code == OUT_PROTOCOL || failed()->code == OUT_SOCKET ||
		    clock_left(l->give_up_ms) == 0 || l->epoch == UINT32_MAX)
			return rc;
		rc = pause_link(l, times);
		if (rc != LINK_DONE)
			return rc;
	}
	return rc;
}

static int write_report(struct link *l, char what, const char *text)
{
	char report[1 + FAIL_TEXT_MAX] = {what};
	size_t len = strlen(text);

	memcpy(report + 1, text, len);
	if (write_full(l->out, report, 1 + len) == 0)
		return 0;
	/* EPIPE: nobody is left to read it. */
	if (errno != EPIPE)
		log_warn("a lane between two rdcpd: report to the conductor: %m");
	return -1;
}

static void relay_bytes(struct link *l)
{
	const struct pump_side source = {.in = l->fds[0], .out = l->fds[0]};
	const struct pump_side sink = {.in = l->fds[1], .out = l->fds[1]};

	/* It closes both. The ends see themselves that a connection broke, but not why this process
	 * broke one. */
	if (pump_run(&source, &sink, l->in) && !is_broken_connection(errno) && !l->warned) {
		log_warn("lane %u between %s and %s: relay its bytes: %m", l->lane->index,
			 l->lane->way->names[0], l->lane->way->names[1]);
		l->warned = true;
	}
	l->fds[0] = l->fds[1] = -1;
}

/* Carries the wires of the lane, one after the other, until a result. */
static enum link_result carry_lane(struct link *l)
{
	enum link_result rc;

	if (openssl_start())
		return LINK_FAILED;
	while ((rc = make_link(l)) == LINK_DONE) {
		if (!l->used && write_report(l, BRIDGE_USED, ""))
			return LINK_DONE;
		l->used = true;
		relay_bytes(l);
		/* At the end of the session both ends leave, and the conductor with them. */
		if (pause_link(l, 0) == CONDUCTOR_GONE)
			return CONDUCTOR_GONE;
	}
	return rc;
}

int bridge_lane_run(void *bridge_lane, int in, int out)
{
	struct link l = {.lane = bridge_lane, .in = in, .out = out, .fds = {-1, -1}};

	/* A terminal sends it to all processes; the conductor handles it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	process_protect_secrets();
	secret_guard(l.lane->between, sizeof *l.lane->between);
	if (carry_lane(&l) != LINK_FAILED)
		return OUT_DONE;
	(void)write_report(&l, BRIDGE_FAILED, failed()->text);
	return (int)failed()->code;
}
