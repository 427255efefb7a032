/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/end_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "cmd/cli/operand.h"
#include "cmd/conductor/daemon_call.h"
#include "cmd/process/signals.h"

enum { OUT_FIRST = 4 << 10, SIGNALS_MS = 50 /* how often to look for a signal */ };

void end_pipe_init(struct end_pipe *l)
{
	memset(l, 0, offsetof(struct end_pipe, in));
	l->child.in = l->child.out = l->child.go = -1;
	l->out = NULL;
	l->out_start = l->out_end = l->out_size = 0;
	framer_init(&l->in);
}

void end_pipe_set_host(struct end_pipe *l, const char *host)
{
	const char *at = strrchr(host, '@');

	l->far = host[0] != '\0';
	l->daemon = operand_is_daemon(host);
	l->ssh_host = host;
	if (l->daemon)
		daemon_name(host, l->name);
	else if (l->far)
		snprintf(l->name, sizeof l->name, "%s", at ? at + 1 : host);
	else if (gethostname(l->name, sizeof l->name - 1) || !l->name[0])
		snprintf(l->name, sizeof l->name, "here");
}

int end_pipe_open(struct end_pipe *l)
{
	if (fcntl(l->child.in, F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(l->child.out, F_SETFL, O_NONBLOCK) < 0)
		return fail_as(OUT_START, "start %s: %m", l->child.what);
	return 0;
}

void end_pipe_renew(struct end_pipe *l)
{
	l->greeted = l->has_verdict = false;
	l->relayed_frame = l->relayed_done = false;
	l->reused = true;
	l->give_up_ms = 0;
	l->loopback_port = 0;
	memset(&l->verdict, 0, sizeof l->verdict);
	memset(&l->progress, 0, sizeof l->progress);
}

bool end_pipe_await_exit(struct end_pipe *l, uint64_t deadline_ms, bool interrupted)
{
	int status, signo;

	while (clock_left(deadline_ms) > 0 &&
	       !child_wait(&l->child, &status, clock_ms() + SIGNALS_MS)) {
		/* A first signal is left to the caller. */
		while (interrupted && (signo = signals_next())) {
			if (signo != SIGUSR1 && signo != SIGCHLD)
				return true;
		}
	}
	return false;
}

void end_pipe_close(struct end_pipe *l)
{
	child_stop(&l->child);
	if (l->out)
		explicit_bzero(l->out, l->out_size);
	free(l->out);
	l->out = NULL;
}

/* Makes room for len bytes at out_end. */
static int reserve_output(struct end_pipe *l, size_t len)
{
	size_t used = l->out_end - l->out_start;
	size_t size = l->out_size ? l->out_size : OUT_FIRST;
	uint8_t *bigger;

	if (l->out_size - l->out_end >= len)
		return 0;
	/* What is moved is less than what was written since the last time. */
	if (l->out_start >= used && l->out_size - used >= len) {
		memmove(l->out, l->out + l->out_start, used);
		l->out_start = 0;
		l->out_end = used;
		return 0;
	}
	while (size - l->out_end < len)
		size *= 2;
	/* realloc() could leave a copy of START's secret in freed memory. */
	bigger = malloc(size);
	if (!bigger)
		return fail_as(OUT_MEMORY, "queue a message for %s: %m", l->child.what);
	if (l->out) {
		memcpy(bigger, l->out, l->out_end);
		explicit_bzero(l->out, l->out_size);
		free(l->out);
	}
	l->out = bigger;
	l->out_size = size;
	return 0;
}

int end_pipe_send(struct end_pipe *l, uint8_t type, const void *body, size_t len)
{
	if (l->child.in < 0)
		return 0;
	if (reserve_output(l, FRAME_HEAD + len))
		return -1;
	frame_head_encode(type, (uint32_t)len, l->out + l->out_end);
	if (len)
		memcpy(l->out + l->out_end + FRAME_HEAD, body, len);
	l->out_end += FRAME_HEAD + len;
	end_pipe_write(l);
	return 0;
}

bool end_pipe_is_full(const struct end_pipe *l)
{
	return l->out_end - l->out_start > END_PIPE_FULL;
}

void end_pipe_write(struct end_pipe *l)
{
	while (l->child.in >= 0 && l->out_end > l->out_start) {
		ssize_t n = write(l->child.in, l->out + l->out_start, l->out_end - l->out_start);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			/* The end has closed its input. Its remaining output shows why; drop
			 * the queue, so that the other end need not wait. */
			child_close_in(&l->child);
			break;
		}
		explicit_bzero(l->out + l->out_start, (size_t)n);
		l->out_start += (size_t)n;
	}
	l->out_start = l->out_end = 0;
}

int end_pipe_read(struct end_pipe *l)
{
	size_t size;
	void *room = framer_room(&l->in, &size);
	ssize_t n = read(l->child.out, room, size);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (n <= 0)
		return 0;
	l->last_read_ms = clock_ms();
	framer_filled(&l->in, (size_t)n);
	return 1;
}
