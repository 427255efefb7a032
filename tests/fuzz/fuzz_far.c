/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a far host sends over ssh before it has authenticated: greetings, text of a shell, findings
 * of its survey, the port of its lanes. The first byte selects the function under test, the second
 * and third how ssh starts and ends; the rest is what the host sends. No process is started.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "cmd/check/survey_call.h"
#include "cmd/conductor/detour.h"
#include "cmd/conductor/far_command.h"
#include "expect.h"

enum { SURVEY, SURVEY_HERE, KEEPER, WHOM };
enum { BY_SIGNAL = 1 << 0, IN_A_PLACE = 1 << 1, NO_SSH = 1 << 2, NO_START = 1 << 3 };
enum { INPUT_MAX = 64 << 10, TURNS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the child of this input sends. */
static const uint8_t *says;
static size_t says_len;
static uint8_t how;
static int ends;

/* These replace functions of cmd/process/child.c and cmd/conductor/far_command.c (-Wl,--wrap). */
int __wrap_far_start(const struct options *o, const char *host, const char *verb,
		     struct child *out);
int __wrap_child_fork(int (*fn)(void *, int, int), void *ctx, const char *what, struct child *out);
bool __wrap_child_wait(struct child *c, int *status, uint64_t deadline_ms);
void __wrap_child_stop(struct child *c);

static int start(struct child *out)
{
	int fds[2];

	if (how & NO_START)
		return fail_as(OUT_START, "no process");
	expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	expect(send(fds[1], says, says_len, MSG_DONTWAIT) == (ssize_t)says_len);
	shutdown(fds[1], SHUT_WR);
	/* Nothing reads what is written to the child. */
	*out = (struct child){.in = fcntl(fds[0], F_DUPFD_CLOEXEC, 0), .out = fds[0], .go = fds[1]};
	strcpy(out->what, "ssh far");
	return 0;
}

int __wrap_far_start(const struct options *o, const char *host, const char *verb, struct child *out)
{
	(void)o, (void)host, (void)verb;
	return start(out);
}

/* The carrier of a lane sends nothing. */
int __wrap_child_fork(int (*fn)(void *, int, int), void *ctx, const char *what, struct child *out)
{
	(void)fn, (void)ctx;
	if (strcmp(what, "a lane over ssh") != 0)
		return start(out);
	*out = (struct child){.in = -1, .out = -1, .go = -1};
	return 0;
}

bool __wrap_child_wait(struct child *c, int *status, uint64_t deadline_ms)
{
	(void)c, (void)deadline_ms;
	*status = ends;
	return ends >= 0;
}

void __wrap_child_stop(struct child *c)
{
	child_close_in(c);
	child_close_out(c);
	if (c->go >= 0)
		close(c->go);
	c->go = -1;
}

static void on_found(void *ctx, const struct msg_finding *m)
{
	unsigned *found = ctx;

	++*found;
	expect(m->state <= FINDING_FAILURE && memchr(m->what, '\0', sizeof m->what));
}

static void call(const char *host)
{
	static struct end_pipe l;
	struct options o = {.program = RDCHECK,
			    .remote.rdcp_path = how & IN_A_PLACE ? "/opt/rdcp" : "rdcp",
			    .remote.rsh = how & NO_SSH ? "rsh" : NULL,
			    .network.timeout_ms = 50};
	unsigned found = 0;
	struct survey_call c = {.o = &o, .host = host, .found = on_found, .ctx = &found};
	uint64_t ns = 0;

	if (survey_call(&c, &l, &ns))
		expect(failed()->code != OUT_DONE && failed()->text[0]);
	else
		expect(l.greeted && ns > 0);
	expect(found <= 1024);
}

static int announce(void *ctx, unsigned port, const char *why)
{
	unsigned *told = ctx;

	expect(port <= 65535 && why);
	++*told;
	return 0;
}

static void keep(void)
{
	struct pollfd p[DETOUR_POLLS];
	unsigned told = 0;
	struct detour_way way = {.from = "far", .announce = announce, .ctx = &told};
	struct detour *d;
	int rc = detour_open(&way, &d);

	for (unsigned i = 0; rc == 0 && i < TURNS; i++) {
		unsigned n = detour_polls(d, p);

		poll(p, n, 0);
		rc = detour_handle(d, p, n);
	}
	expect(told <= 1);
	expect(rc == 0 || failed()->code == OUT_START);
	detour_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3 || size > INPUT_MAX)
		return -1;
	/* A status as of waitpid(2); -1: the child does not end. */
	how = data[2];
	ends = data[1] == 0x80 ? -1 : (how & BY_SIGNAL ? data[1] & 0x7f : data[1] << 8);
	says = data + 3;
	says_len = size - 3;
	switch (data[0] % WHOM) {
	case SURVEY:
		call("user@far");
		break;
	case SURVEY_HERE:
		call("");
		break;
	case KEEPER:
		keep();
		break;
	}
	return 0;
}
