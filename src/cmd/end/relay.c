/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/worker.h"

enum {
	DESCRIPTOR_LEAST = 20, /* shells and their scripts use lower ones */
	POLL_MS = 250, /* a signal may arrive just before a wait */
	WARN_MS = 5000,
};

/* ---- rdrecv -------------------------------------------------------------------------------- */

static int relay_failed(struct relay *r, int fds[2])
{
	fail_as(OUT_START, "create a socket for the command: %m");
	close_fd(fds[0]);
	close_fd(fds[1]);
	*r = (struct relay){.confirm = -1, .inherit = -1};
	return -1;
}

int relay_open(struct relay *r)
{
	int fds[2] = {-1, -1};
	struct stat st;

	*r = (struct relay){.confirm = -1, .inherit = -1};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return relay_failed(r, fds);
	r->confirm = fds[1];
	r->inherit = dup_above(fds[0], DESCRIPTOR_LEAST);
	if (r->inherit < 0 || fstat(r->inherit, &st) < 0) {
		close_fd(r->inherit);
		return relay_failed(r, fds);
	}
	close_fd(fds[0]);
	snprintf(r->env, sizeof r->env, RELAY_VARIABLE "=%d:%ju", r->inherit, (uintmax_t)st.st_ino);
	return 0;
}

void relay_started(struct relay *r)
{
	close_fd(r->inherit);
	r->inherit = -1;
}

int relay_confirm(struct relay *r)
{
	/* The command need not read it: SIGPIPE is ignored. */
	if (r->confirm >= 0 && write_full(r->confirm, "e", 1) && errno != EPIPE)
		return fail("confirm the end of the stream to the command: %m");
	return 0;
}

bool relay_is_awaited(const struct relay *r)
{
	return r->confirm >= 0 && count_readable(r->confirm) > 0;
}

void relay_close(struct relay *r)
{
	close_fd(r->confirm);
	r->confirm = -1;
}

/* ---- rdsend -------------------------------------------------------------------------------- */

static int confirm_fd = -1; /* readable when the upstream rdrecv confirms or has ended; -1: none */
static bool is_closed; /* RELAY_VARIABLE names a descriptor that is not there */
static atomic_bool warned; /* relay_await() has told why it waits */
static int stat_error; /* of the descriptor that it names */

static int fail_truncated(void)
{
	return fail_as(OUT_PEER_LOST,
		       "the upstream rdrecv failed before the end of its stream: the "
		       "input is truncated");
}

/* rdrecv also terminates its command when it has failed. */
static int find_signal_cause(void)
{
	struct pollfd p = {.fd = confirm_fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0 && count_readable(confirm_fd) == 0 ? fail_truncated() : 0;
}

void relay_take(void)
{
	const char *text = getenv(RELAY_VARIABLE);
	struct stat st;
	uintmax_t inode;
	int fd;
	bool named = text && sscanf(text, "%d:%ju", &fd, &inode) == 2;

	unsetenv(RELAY_VARIABLE);
	if (!named)
		return;
	is_closed = fd <= STDERR_FILENO || fstat(fd, &st) < 0;
	if (is_closed && fd > STDERR_FILENO && errno != EBADF)
		stat_error = errno;
	if (is_closed || !S_ISSOCK(st.st_mode) || st.st_ino != inode) {
		is_closed = true;
		return;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	confirm_fd = fd;
	fail_signal_by(find_signal_cause);
}

int relay_check(void)
{
	if (!is_closed)
		return 0;
	errno = stat_error;
	if (stat_error)
		return fail("examine the descriptor of " RELAY_VARIABLE ": %m");
	return fail_as(
		OUT_PEER_LOST,
		"a program between the upstream rdrecv and this one closed the descriptor of " RELAY_VARIABLE
		": the end of the input can't be confirmed; keep it open, or "
		"accept any end with env -u " RELAY_VARIABLE);
}

/* If it cannot be sent, rdrecv has ended, or many others have said the same. */
static void report_end(void)
{
	struct stat st;

	if (confirm_fd >= 0 && fstat(STDIN_FILENO, &st) == 0 &&
	    (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		send(confirm_fd, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int relay_finish(void *ctx)
{
	(void)ctx;
	report_end();
	return relay_await();
}

int relay_await(void)
{
	uint64_t warn_ms = clock_ms() + WARN_MS;
	struct pollfd p = {.fd = confirm_fd, .events = POLLIN};
	int n;

	if (confirm_fd < 0)
		return relay_check();
	while ((n = poll(&p, 1, POLL_MS)) <= 0) {
		if (cancelled())
			return fail_signal(cancelled());
		if (n < 0 && errno != EINTR)
			return fail("wait for the upstream rdrecv: %m");
		if (clock_left(warn_ms) > 0 || atomic_exchange(&warned, true))
			continue;
		log_warn("the input has ended; waiting until the upstream rdrecv has received "
			 "its whole stream");
	}
	n = count_readable(confirm_fd);
	if (n < 0)
		return fail("wait for the upstream rdrecv: %m");
	return n > 0 ? 0 : fail_truncated();
}
