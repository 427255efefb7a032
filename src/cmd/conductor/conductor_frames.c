/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/conductor_impl.h"

#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "cmd/conductor/explain.h"
#include "cmd/output/events.h"

static void keep_warning(struct measure *to, const struct end_pipe *l, const char *text)
{
	if (!to->warning[0])
		snprintf(to->warning, sizeof to->warning, "%s%s%s", l->far ? l->name : "",
			 l->far ? ": " : "", text);
}

static int take_note(struct conductor *c, struct end_pipe *l, const struct frame *f)
{
	struct msg_note m;

	if (msg_note_decode(f, &m))
		return -1;
	if (c->job->measure && c->job->measure->keeps_warning && m.level == LOG_WARN)
		keep_warning(c->job->measure, l, m.text);
	else if (l->far)
		log_at((enum log_level)m.level, "%s: %s", l->name, m.text);
	else
		log_at((enum log_level)m.level, "%s", m.text);
	return 0;
}

static int take_verdict(struct conductor *c, struct end_pipe *l, const struct frame *f)
{
	struct msg_verdict m;

	if (msg_verdict_decode(f, &m))
		return -1;
	conductor_take_verdict(c, l, &m);
	return 0;
}

static int announce_detour_port(void *ctx, unsigned port, const char *why)
{
	struct end_pipe *l = ctx;
	uint8_t body[TEXT_MAX + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_detour m = {.port = (uint16_t)port};

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_detour_encode(&w, &m);
	return end_pipe_send(l, MSG_DETOUR, body, w.used);
}

/* Routes the lanes over ssh, to the end that listened first. */
static int take_detour(struct conductor *c, const char *why)
{
	struct end_pipe *to = &c->pipes[c->listener];
	struct end_pipe *from = conductor_other(c, to);
	const char *through = to->daemon             ? " and through this host"
			      : from->far && to->far ? ", through this host"
						     : "";
	struct detour_way way = {
		.o = c->job->o,
		.from = from->far ? from->ssh_host : NULL,
		.to = to->far && !to->daemon ? to->ssh_host : NULL,
		.daemon = to->daemon ? to->ssh_host : NULL,
		.port = to->loopback_port,
		.announce = announce_detour_port,
		.ctx = from,
	};

	enum log_level level = c->job->o->output.quiet ? LOG_DEBUG : LOG_WARN;

	if (c->detoured)
		return 0;
	c->detoured = true;
	if (c->job->o->network.want == TRANSPORT_TCP || c->job->o->network.want == TRANSPORT_RDMA)
		return fail_as(OUT_TRANSPORT, "no direct connection between %s and %s: %s%s",
			       from->name, to->name, why,
			       c->job->measure ? ""
			       : to->daemon
				       ? " (without --transport data would go through this host)"
				       : " (without --transport data would go over ssh)");
	if (!from->far && !to->far)
		return fail_as(OUT_CONNECT, "the two ends on this host can't connect: %s", why);
	if (!way.port && !way.daemon)
		return fail_as(OUT_CONNECT, "no connection between %s and %s: %s", from->name,
			       to->name, why);
	/* rdbench logs the detour of its first measurement only. */
	if (why[0] && !(way.daemon && c->job->o->remote.through_here))
		log_at(level, "no direct connection between %s and %s (%s): data goes over ssh%s",
		       from->name, to->name, why, through);
	else
		log_at(way.daemon ? LOG_INFO : level, "data goes over ssh%s", through);
	if (way.daemon)
		daemon_frames_warn_of_clear(c);
	return detour_open(&way, &c->detour);
}

static int take_progress(struct end_pipe *l, const struct frame *f)
{
	struct msg_progress m;

	if (msg_progress_decode(f, &m))
		return -1;
	l->progress = m;
	return 0;
}

static int take_stuck(struct conductor *c, const struct frame *f)
{
	struct msg_noroute m;

	return msg_noroute_decode(f, &m) ? -1 : take_detour(c, m.why);
}

static int take_listening(struct conductor *c, struct end_pipe *l, const struct frame *f)
{
	struct msg_detour m;

	if (msg_detour_decode(f, &m))
		return -1;
	l->loopback_port = m.port;
	/* --transport=ssh or -3: no other route is tried first. */
	return conductor_wants_ssh(c) && l == &c->pipes[c->listener] ? take_detour(c, "") : 0;
}

static int take_event(const struct frame *f)
{
	struct msg_event m;

	if (msg_event_decode(f, &m))
		return -1;
	events_take(&m);
	return 0;
}

static int take_target_name(struct conductor *c, const struct end_pipe *l, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	if (!c->job->added || l != &c->pipes[END_SINK])
		return fail_as(OUT_PROTOCOL, "%s sent an unexpected TAKEN", l->name);
	return taken_add(c->job->added, m.name);
}

/* In place of the other end, which has left. An end that does not read gets no more answers. */
static int answer_ping(const struct conductor *c, struct end_pipe *l, const struct frame *f)
{
	struct msg_ping m;

	if (msg_ping_decode(f, &m))
		return -1;
	if (!conductor_removals_due(c) || end_pipe_is_full(l))
		return 0;
	return end_pipe_send(l, MSG_PONG, f->body, f->len);
}

/* The sink has stored everything.  With DONE the source removes its marker, and the next run
 * deletes what this one has moved: not after a run that fails, because its output can't be written.
 */
static int check_output_of_move(const struct conductor *c)
{
	const struct rules *r = &c->job->o->rules;

	return r->remove_source && r->delete ? events_check() : 0;
}

static int take_frame(struct conductor *c, struct end_pipe *l, const struct frame *f)
{
	if (!l->greeted)
		return l->reused && f->type != MSG_GREETING ? 0 : take_greeting(l, f);
	if (!message_is_local(f->type)) {
		struct end_pipe *to = conductor_other(c, l);
		bool handled;

		l->relayed_frame = true;
		if (f->type == MSG_DONE && check_output_of_move(c))
			return -1;
		l->relayed_done = l->relayed_done || f->type == MSG_DONE;
		if (daemon_frames_take(c, l, f, &handled))
			return -1;
		if (f->type == MSG_PING && to->has_verdict)
			return answer_ping(c, l, f);
		return handled || to->gone || to->has_verdict
			       ? 0
			       : end_pipe_send(to, f->type, f->body, f->len);
	}
	switch (f->type) {
	case MSG_NOTE:
		return take_note(c, l, f);
	case MSG_PROGRESS:
		return take_progress(l, f);
	case MSG_EVENT:
		return take_event(f);
	case MSG_TAKEN:
		return take_target_name(c, l, f);
	case MSG_VERDICT:
		return take_verdict(c, l, f);
	case MSG_LISTENING:
		return take_listening(c, l, f);
	case MSG_STUCK:
		return take_stuck(c, f);
	default:
		/* `rdcp --ends' greets for the next end when one has ended. */
		if (f->type == MSG_GREETING && c->job->measure)
			return fail_as(OUT_PEER_LOST, "lost the end on %s: it has ended", l->name);
		return fail_as(OUT_PROTOCOL, "%s sent an unexpected %s", l->name,
			       message_name(f->type));
	}
}

void conductor_take_frames(struct conductor *c, struct end_pipe *l)
{
	struct frame f;
	int rc = 0;

	while (!conductor_is_finished(c, l) && !end_pipe_is_full(conductor_other(c, l)) &&
	       (rc = framer_next(&l->in, &f)) > 0) {
		rc = take_frame(c, l, &f);
		if (rc)
			break;
	}
	if (rc >= 0 || l->gone)
		return;
	if (!l->greeted && failed()->code == OUT_PROTOCOL)
		explain_text(l);
	/* Do not read further frames of an end that broke the protocol. */
	l->gone = !l->greeted || failed()->code == OUT_PROTOCOL || failed()->code == OUT_VERSION;
	conductor_fail(c, "");
}
