/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/check/survey_call.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "cmd/check/survey_end.h"
#include "cmd/conductor/explain.h"
#include "cmd/conductor/far.h"

enum {
	FINDINGS_MOST = 1024, /* more than all ports and addresses that are looked at make */
	PINGS = 5,
	EXIT_MS = 2000,
};

struct caller {
	const struct survey_call *call;
	struct link *link;
	struct channel *channel;
	uint64_t control_ns;
	unsigned taken;
};

/* ---- what it says ---------------------------------------------------------------------------- */

static uint64_t deadline(const struct caller *c)
{
	return clock_ms() + (uint64_t)c->call->o->timeout_ms;
}

/* The next frame.  0, or -1 when it is gone, silent or talks nonsense. */
static int hear(struct caller *c, struct frame *f)
{
	struct link *l = c->link;
	/* Before it greets, ssh may ask for a password. */
	int rc = frame_read(c->channel, &l->in, l->greeted ? deadline(c) : 0, f), status = 0;
	size_t rest = 0;

	if (rc > 0)
		return 0;
	if (rc < 0 && failed()->code == OUT_SIGNAL)
		return -1;
	if (rc == 0 || failed()->code == OUT_PEER_LOST || !l->greeted) {
		bool reaped = child_wait(&l->child, &status, clock_ms() + EXIT_MS);

		framer_rest(&l->in, &rest);
		if (!l->greeted && (rest || !reaped))
			return explain_text(l);
		return l->greeted ? explain_death(l, status, reaped)
				  : explain_exit(l, c->call->o, status);
	}
	return -1;
}

static int take_finding(struct caller *c, const struct frame *f)
{
	struct msg_finding m;

	if (msg_finding_decode(f, &m))
		return -1;
	if (++c->taken > FINDINGS_MOST)
		return fail_as(OUT_PROTOCOL, "%s finds more than there can be", c->link->name);
	c->call->found(c->call->ctx, &m);
	return 0;
}

static int take_findings(struct caller *c)
{
	struct frame f;

	for (;;) {
		if (hear(c, &f))
			return -1;
		if (f.type == MSG_END)
			return 0;
		if (f.type != MSG_FINDING)
			return fail_as(OUT_PROTOCOL, "%s sent %s, which is not its to send",
				       c->link->name, message_name(f.type));
		if (take_finding(c, &f))
			return -1;
	}
}

/* The shortest of some round trips. */
static int measure(struct caller *c)
{
	struct frame f;

	for (uint64_t i = 1; i <= PINGS; i++) {
		struct msg_ping m = {.cookie = i};
		uint64_t from = clock_ns(), ns;
		uint8_t body[16];
		struct writer w = writer_of(body, sizeof body);

		msg_ping_encode(&w, &m);
		if (frame_write(c->channel, MSG_PING, body, w.used, deadline(c)) || hear(c, &f))
			return -1;
		ns = clock_ns() - from;
		if (f.type != MSG_PONG || msg_ping_decode(&f, &m) || m.cookie != i)
			return fail_as(OUT_PROTOCOL, "%s did not answer a PING", c->link->name);
		if (!c->control_ns || ns < c->control_ns)
			c->control_ns = ns;
	}
	return 0;
}

/* ---- the call ----------------------------------------------------------------------------------
 */

static int talk(struct caller *c)
{
	struct link *l = c->link;
	struct frame f;

	if (hear(c, &f))
		return -1;
	if (take_greeting(l, &f)) {
		if (failed()->code == OUT_PROTOCOL)
			explain_text(l);
		return -1;
	}
	return take_findings(c) || measure(c) ? -1 : 0;
}

static int run_here(void *ctx, int in, int out)
{
	(void)ctx;
	return survey_end_run(in, out);
}

static int start(const struct survey_call *call, struct link *l)
{
	if (l->far)
		return far_start(call->o, call->host, "--survey", &l->child);
	return child_fork(run_here, NULL, "the survey of this host", &l->child);
}

int survey_call(const struct survey_call *call, struct link *l, uint64_t *control_ns)
{
	struct caller c = {.call = call, .link = l};
	int in, out, rc, status;

	link_init(l);
	link_name(l, call->host);
	if (start(call, l))
		return -1;
	in = dup_above(l->child.out, 3);
	out = dup_above(l->child.in, 3);
	if (in < 0 || out < 0 || channel_over_fds(in, out, &c.channel)) {
		rc = fail_as(OUT_START, "talk to %s: %m", l->child.what);
		goto out;
	}
	channel_set_peer(c.channel, l->name);
	rc = talk(&c);
	*control_ns = c.control_ns;
out:
	channel_free(c.channel);
	child_close_in(&l->child);
	if (!rc)
		child_wait(&l->child, &status, clock_ms() + EXIT_MS);
	link_close(l);
	return rc;
}
