/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A rdcpd only accepts connections. So where both ends are far, and one of them is at a rdcpd, the
 * conductor does not pass all frames on as they are:
 *
 * - Between a daemon and an ssh host, the ssh host connects. If it cannot, it would swap roles: the
 *   conductor answers in the daemon's place that this does not work either, and makes a detour,
 *   which the daemon takes for connections like any other.
 * - Between two daemons, both listen, and the conductor's bridge is the connecting end of both.
 */

#include <string.h>
#include "base/log.h"
#include "cmd/conductor/conductor_impl.h"

static int send_no_route(struct end_pipe *to)
{
	uint8_t body[TEXT_MAX + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_noroute m = {.round = 1, .why = "rdcpd connects to no other host"};

	msg_noroute_encode(&w, &m);
	return end_pipe_send(to, MSG_NOROUTE, body, w.used);
}

/* -3: the ssh host learns the session, but no address. */
static int send_empty_offer(struct end_pipe *to, const struct frame *f)
{
	uint8_t body[sizeof(struct msg_offer) + 64];
	struct writer w = writer_of(body, sizeof body);
	struct msg_offer m;

	if (msg_offer_decode(f, &m))
		return -1;
	m.count = 0;
	msg_offer_encode(&w, &m);
	return end_pipe_send(to, MSG_OFFER, body, w.used);
}

static int send_choice(struct end_pipe *to, const char *why)
{
	uint8_t body[TEXT_MAX + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_choice m = {.transport = TRANSPORT_TCP};

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_choice_encode(&w, &m);
	return end_pipe_send(to, MSG_CHOICE, body, w.used);
}

/* To a daemon, a lane over a detour is one over TCP. */
static int pass_choice(struct end_pipe *to, const struct frame *f)
{
	struct msg_choice m;

	if (msg_choice_decode(f, &m))
		return -1;
	if (m.transport == TRANSPORT_SSH)
		return send_choice(to, m.why);
	return end_pipe_send(to, f->type, f->body, f->len);
}

static int take_between_daemons(struct conductor *c, struct end_pipe *l, const struct frame *f,
				bool *handled)
{
	int end = l == &c->pipes[END_SINK];

	*handled = f->type == MSG_OFFER;
	if (f->type == MSG_HELLO)
		return bridge_take_hello(c->bridge, end, f);
	return *handled ? bridge_take_offer(c->bridge, end, f) : 0;
}

int daemon_frames_take(struct conductor *c, struct end_pipe *l, const struct frame *f,
		       bool *handled)
{
	struct end_pipe *to = conductor_other(c, l);

	*handled = false;
	if (!l->far || !to->far || (!l->daemon && !to->daemon))
		return 0;
	if (c->bridge)
		return take_between_daemons(c, l, f, handled);
	*handled = true;
	if (l->daemon && f->type == MSG_OFFER && c->job->o->remote.through_here)
		return send_empty_offer(to, f);
	if (to->daemon && f->type == MSG_NOROUTE)
		return 0;
	if (to->daemon && f->type == MSG_OFFER)
		return send_no_route(l);
	if (to->daemon && f->type == MSG_CHOICE)
		return pass_choice(to, f);
	*handled = false;
	return 0;
}

int daemon_frames_begin_bridge(struct conductor *c)
{
	struct bridge_way way = {.o = c->job->o};

	for (int i = 0; i < 2; i++) {
		way.urls[i] = c->pipes[i].ssh_host;
		way.names[i] = c->pipes[i].name;
	}
	return bridge_open(&way, c->orders.secret, &c->bridge);
}

void daemon_frames_warn_of_clear(const struct conductor *c)
{
	const struct end_pipe *source = &c->pipes[END_SOURCE], *sink = &c->pipes[END_SINK];

	if (c->job->o->network.encrypt == ENCRYPT_OFF)
		log_warn("data is sent in the clear over TCP to %s (--encrypt=off)",
			 sink->daemon ? sink->name : source->name);
}

int daemon_frames_choose(struct conductor *c)
{
	log_info("data goes through this host: rdcpd connects to no other host");
	daemon_frames_warn_of_clear(c);
	return send_choice(&c->pipes[END_SOURCE], "") || send_choice(&c->pipes[END_SINK], "") ? -1
											      : 0;
}
