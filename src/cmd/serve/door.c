/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"

enum {
	ANSWER_MS = 10000, /* the parent may be busy with a crowd */
	REPEAT_MS = 100,
};

/* After a call failed: whether it can be repeated. */
static bool may_repeat(int door, short events, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = door, .events = events};

	if (clock_left(deadline_ms) == 0 || (errno != EINTR && errno != EAGAIN))
		return false;
	if (errno == EAGAIN)
		poll(&p, 1, REPEAT_MS);
	return true;
}

static int send_message(int door, const void *m, size_t len, uint64_t deadline_ms)
{
	ssize_t n;

	while ((n = send(door, m, len, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 &&
	       may_repeat(door, POLLOUT, deadline_ms))
		;
	return n == (ssize_t)len ? 0 : -1;
}

static int take_answer(int door, struct door_answer *a, uint64_t deadline_ms)
{
	ssize_t n;

	while ((n = recv(door, a, sizeof *a, MSG_DONTWAIT)) < 0 &&
	       may_repeat(door, POLLIN, deadline_ms))
		;
	/* It has closed the door. */
	if (n == 0)
		errno = EPIPE;
	return n == sizeof *a ? 0 : -1;
}

int door_ask(int door, const struct entrant *who, uint64_t *memory, unsigned *slot)
{
	uint64_t deadline_ms = clock_ms() + ANSWER_MS;
	struct door_request ask = {.who = *who};
	struct door_answer got;

	if (send_message(door, &ask, sizeof ask, deadline_ms) ||
	    take_answer(door, &got, deadline_ms))
		return fail_as(OUT_START, "ask rdcpd for a session: %m");
	*memory = got.memory;
	*slot = got.slot;
	return got.refusal.code == OUT_DONE ? 0 : fail_again(&got.refusal);
}

long door_read(int door, union door_message *m)
{
	ssize_t n = recv(door, m, sizeof *m, MSG_DONTWAIT);

	if (n == sizeof m->request) {
		m->request.who.user[sizeof m->request.who.user - 1] = '\0';
		m->request.who.module[sizeof m->request.who.module - 1] = '\0';
	}
	return n;
}

int door_answer(int door, const struct door_answer *a)
{
	return send_message(door, a, sizeof *a, clock_ms() + REPEAT_MS);
}
