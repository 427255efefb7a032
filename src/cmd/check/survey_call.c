/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/check/survey_call.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "cmd/check/survey_serve.h"
#include "cmd/conductor/explain.h"
#include "cmd/conductor/far_command.h"

enum {
	FINDINGS_MOST = 1024, /* more than a survey of the most ports and addresses makes */
	PINGS = 5,
	EXIT_MS = 2000,
};

struct survey_client {
	const struct survey_call *call;
	struct end_pipe *pipe;
	struct channel *channel;
	uint64_t control_ns;
	unsigned taken;
};

/* ---- findings -------------------------------------------------------------------------------- */

static uint64_t frame_deadline(const struct survey_client *c)
{
	return clock_ms() + (uint64_t)c->call->o->network.timeout_ms;
}

/* Returns 0 with the next frame, or -1 if the survey is gone, silent or violates the protocol. */
static int read_survey_frame(struct survey_client *c, struct frame *f)
{
	struct end_pipe *l = c->pipe;
	/* Before it greets, ssh may ask for a password. */
	int rc = frame_read(c->channel, &l->in, l->greeted ? frame_deadline(c) : 0, f), status = 0;
	size_t rest = 0;

	if (rc > 0)
		return 0;
	if (rc < 0 && (failed()->code == OUT_SIGNAL || failed()->code == OUT_SOCKET))
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

static int take_finding(struct survey_client *c, const struct frame *f)
{
	struct msg_finding m;

	if (msg_finding_decode(f, &m))
		return -1;
	if (++c->taken > FINDINGS_MOST)
		return fail_as(OUT_PROTOCOL, "%s sent too many findings", c->pipe->name);
	c->call->found(c->call->ctx, &m);
	return 0;
}

static int take_findings(struct survey_client *c)
{
	struct frame f;

	for (;;) {
		if (read_survey_frame(c, &f))
			return -1;
		if (f.type == MSG_END)
			return 0;
		if (f.type != MSG_FINDING)
			return fail_as(OUT_PROTOCOL, "%s sent an unexpected %s", c->pipe->name,
				       message_name(f.type));
		if (take_finding(c, &f))
			return -1;
	}
}

/* Keeps the shortest of several round trips. */
static int measure_round_trip(struct survey_client *c)
{
	struct frame f;

	for (uint64_t i = 1; i <= PINGS; i++) {
		struct msg_ping m = {.cookie = i};
		uint64_t from = clock_ns(), ns;
		uint8_t body[16];
		struct writer w = writer_of(body, sizeof body);

		msg_ping_encode(&w, &m);
		if (frame_write(c->channel, MSG_PING, body, w.used, frame_deadline(c)) ||
		    read_survey_frame(c, &f))
			return -1;
		ns = clock_ns() - from;
		if (f.type != MSG_PONG || msg_ping_decode(&f, &m) || m.cookie != i)
			return fail_as(OUT_PROTOCOL, "%s did not answer a PING", c->pipe->name);
		if (!c->control_ns || ns < c->control_ns)
			c->control_ns = ns;
	}
	return 0;
}

/* ---- the call ----------------------------------------------------------------------------------
 */

static int receive_survey(struct survey_client *c)
{
	struct end_pipe *l = c->pipe;
	struct frame f;

	if (read_survey_frame(c, &f))
		return -1;
	if (take_greeting(l, &f)) {
		if (failed()->code == OUT_PROTOCOL)
			explain_text(l);
		return -1;
	}
	return take_findings(c) || measure_round_trip(c) ? -1 : 0;
}

static int run_local_survey(void *ctx, int in, int out)
{
	(void)ctx;
	return survey_serve(in, out);
}

static int start_survey(const struct survey_call *call, struct end_pipe *l)
{
	if (l->far)
		return far_start(call->o, call->host, "--survey", &l->child);
	return child_fork(run_local_survey, NULL, "the survey of this host", &l->child);
}

int survey_call(const struct survey_call *call, struct end_pipe *l, uint64_t *control_ns)
{
	struct survey_client c = {.call = call, .pipe = l};
	int in, out, rc, status;

	end_pipe_init(l);
	end_pipe_set_host(l, call->host);
	if (start_survey(call, l))
		return -1;
	in = dup_above(l->child.out, 3);
	out = dup_above(l->child.in, 3);
	if (in < 0 || out < 0 || channel_over_fds(in, out, &c.channel)) {
		rc = fail_as(OUT_START, "connect to %s: %m", l->child.what);
		goto out;
	}
	channel_set_peer(c.channel, l->name);
	rc = receive_survey(&c);
	*control_ns = c.control_ns;
out:
	channel_free(c.channel);
	child_close_in(&l->child);
	if (!rc)
		child_wait(&l->child, &status, clock_ms() + EXIT_MS);
	end_pipe_close(l);
	return rc;
}
