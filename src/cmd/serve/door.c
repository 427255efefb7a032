/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"

/* The parent may be busy with a crowd. */
enum { ANSWER_MS = 10000 };

static int await_answer(int door)
{
	uint64_t deadline_ms = clock_ms() + ANSWER_MS;
	struct pollfd p = {.fd = door, .events = POLLIN};
	int rc;

	while ((rc = poll(&p, 1, clock_left(deadline_ms))) < 0 && errno == EINTR)
		;
	return rc > 0 ? 0 : -1;
}

int door_ask(int door, const struct entrant *who, uint64_t *memory, unsigned *slot)
{
	struct door_request ask = {.who = *who};
	struct door_answer got;

	if (send(door, &ask, sizeof ask, MSG_NOSIGNAL) != sizeof ask || await_answer(door) ||
	    recv(door, &got, sizeof got, MSG_DONTWAIT) != sizeof got)
		return fail_as(OUT_START, "rdcpd gave no answer whether there is room");
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

void door_answer(int door, const struct door_answer *a)
{
	(void)!send(door, a, sizeof *a, MSG_NOSIGNAL | MSG_DONTWAIT);
}
