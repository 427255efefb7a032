/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/ends_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/conductor/end_pipe.h"
#include "cmd/end/end.h"

enum { EXIT_WAIT_MS = 2000, PIECE = 64 << 10 };

struct ends {
	struct framer in; /* frames of the conductor */
	struct end_pipe pipe; /* to the end */
	bool started; /* START was relayed; frames before it were for an earlier end */
	bool conductor_gone;
};

static int run_forked_end(void *ctx, int in, int out)
{
	int null = RETRIED(open("/dev/null", O_RDWR | O_CLOEXEC));

	(void)ctx;
	/* stdin and stdout belong to the conductor. */
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) {
		log_at(LOG_ERROR, "open /dev/null: %m");
		return OUT_START;
	}
	close_fd(null);
	return end_run(in, out, false);
}

/* Relays frames of the conductor, as far as the end takes them. */
static int relay_to_end(struct ends *e)
{
	struct frame f;
	int rc = 0;

	while (!end_pipe_is_full(&e->pipe) && (rc = framer_next(&e->in, &f)) > 0) {
		e->started = e->started || f.type == MSG_START;
		if (e->started && end_pipe_send(&e->pipe, f.type, f.body, f.len))
			return -1;
	}
	return rc < 0 ? -1 : 0;
}

static int read_conductor(struct ends *e)
{
	size_t size;
	void *room = framer_room(&e->in, &size);
	ssize_t n;

	do
		n = read(STDIN_FILENO, room, size);
	while (n < 0 && errno == EINTR);
	/* Another process that shares this stdin may have made it nonblocking. */
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0 && errno != ECONNRESET)
		return fail_as(OUT_SOCKET, "read from the conductor: %m");
	if (n <= 0) {
		e->conductor_gone = true;
		child_close_in(&e->pipe.child);
		return 0;
	}
	framer_filled(&e->in, (size_t)n);
	return relay_to_end(e);
}

/* Relays bytes of the end. Returns 1, 0 at their end, or -1. */
static int relay_to_conductor(struct ends *e)
{
	uint8_t bytes[PIECE];
	ssize_t n = read(e->pipe.child.out, bytes, sizeof bytes);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (n < 0)
		return fail_as(OUT_SOCKET, "read from an end: %m");
	if (n == 0)
		return 0;
	if (write_full(STDOUT_FILENO, bytes, (size_t)n) == 0)
		return 1;
	return fail_as(errno == EPIPE ? OUT_PEER_LOST : OUT_SOCKET, "write to the conductor: %m");
}

static int serve_end(struct ends *e)
{
	int rc = 1;

	while (rc > 0) {
		struct end_pipe *l = &e->pipe;
		bool reading = !e->conductor_gone && !end_pipe_is_full(l),
		     writing = l->out_end > l->out_start;
		struct pollfd p[3] = {
			{.fd = reading ? STDIN_FILENO : -1, .events = POLLIN},
			{.fd = l->child.out, .events = POLLIN},
			{.fd = writing ? l->child.in : -1, .events = POLLOUT},
		};

		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return fail_as(OUT_SOCKET, "wait for an end: %m");
		if (p[2].revents)
			end_pipe_write(l);
		if (p[0].revents && read_conductor(e))
			return -1;
		if (relay_to_end(e))
			return -1;
		if (p[1].revents)
			rc = relay_to_conductor(e);
	}
	return rc;
}

static int run_one_end(struct ends *e)
{
	int status, rc;

	e->started = false;
	end_pipe_init(&e->pipe);
	if (child_fork(run_forked_end, NULL, "an end", &e->pipe.child) || end_pipe_open(&e->pipe))
		return -1;
	rc = serve_end(e);
	if (rc == 0)
		child_wait(&e->pipe.child, &status, clock_ms() + EXIT_WAIT_MS);
	end_pipe_close(&e->pipe);
	return rc;
}

int ends_run(void)
{
	static struct ends e;
	int rc = 0;

	signal(SIGPIPE, SIG_IGN);
	framer_init(&e.in);
	while (rc == 0 && !e.conductor_gone)
		rc = run_one_end(&e);
	if (rc == 0)
		return OUT_DONE;
	/* The conductor sees only that this process exits. */
	if (failed()->code != OUT_PEER_LOST)
		log_at(LOG_ERROR, "%s", failed()->text);
	return (int)failed()->code;
}
