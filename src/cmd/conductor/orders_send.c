/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/orders_send.h"

#include <string.h>
#include "base/fail.h"
#include "base/random.h"
#include "cmd/end/start_message.h"
#include "session/channel/key.h"

static uint64_t end_flags(const struct orders_send *d, int i)
{
	const struct options *o = d->job->o;
	bool stdio = i == END_SOURCE ? d->job->source_stdio : d->job->sink_stdio;
	const struct {
		bool set;
		uint64_t flag;
	} flags[] = {
		{d->listener == i || d->bridged, START_LISTENS},
		{d->job->many, START_MANY},
		{d->job->taken != NULL, START_SHARED},
		{stdio, START_STDIO},
		{true, START_PROGRESS},
		{d->pipes[i].far, START_FAR},
		{o->files_from != NULL, START_FILES_FROM},
	};
	uint64_t all = 0;

	for (unsigned k = 0; k < sizeof flags / sizeof *flags; k++)
		all |= flags[k].set ? flags[k].flag : 0;
	return all;
}

/* The data of two daemons passes through this host, over TCP, even if both are on one host. */
static void order_bridged_lanes(struct msg_start *m)
{
	if (m->want == TRANSPORT_AUTO)
		m->want = TRANSPORT_TCP;
	if (m->encrypt == ENCRYPT_AUTO)
		m->encrypt = ENCRYPT_ON;
}

static int send_start(const struct orders_send *d, int i)
{
	const struct options *o = d->job->o;
	const struct measure *measure = d->job->measure;
	struct end_pipe *l = &d->pipes[i];
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);
	struct msg_start m;
	int rc;

	if (start_message_make(o, &m))
		return -1;
	m.role = i == END_SOURCE ? ROLE_SOURCE : ROLE_SINK;
	if (d->over_ssh)
		m.want = TRANSPORT_SSH;
	if (d->bridged)
		order_bridged_lanes(&m);
	m.flags |= end_flags(d, i);
	if (measure) {
		m.flags |= measure->flags;
		m.memory_bytes = measure->bytes;
		if (measure->keeps_warning)
			m.flags &= ~START_QUIET;
	}
	memcpy(m.secret, d->secret, sizeof m.secret);
	snprintf(m.host, sizeof m.host, "%s", l->name);
	snprintf(m.peer, sizeof m.peer, "%s", d->pipes[1 - i].name);
	if (d->listener == i)
		snprintf(m.address, sizeof m.address, "%s", o->network.address);
	if (i == END_SINK)
		snprintf(m.target, sizeof m.target, "%s", d->job->target);
	msg_start_encode(&w, &m);
	rc = w.full ? fail_as(OUT_USAGE, "%s: the name is too long", d->job->target)
		    : end_pipe_send(l, MSG_START, body, w.used);
	explicit_bzero(&m, sizeof m);
	explicit_bzero(body, w.used);
	return rc;
}

static int send_wants(const struct orders_send *d, int i)
{
	static uint8_t body[FRAME_BODY_MAX];

	for (unsigned k = 0; k < d->job->count; k++) {
		struct writer w = writer_of(body, sizeof body);
		struct msg_want m;

		if ((size_t)snprintf(m.name, sizeof m.name, "%s", d->job->names[k]) >=
		    sizeof m.name)
			return fail_as(OUT_USAGE, "%s: the name is too long", d->job->names[k]);
		msg_want_encode(&w, &m);
		if (end_pipe_send(&d->pipes[i], MSG_WANT, body, w.used))
			return -1;
	}
	return 0;
}

static int send_rules(const struct orders_send *d, int i)
{
	static uint8_t body[FRAME_BODY_MAX];
	static struct msg_rule m;

	for (unsigned k = 0; d->job->rules && k < d->job->rules->count; k++) {
		const struct pattern_rule *r = &d->job->rules->of[k];
		struct writer w = writer_of(body, sizeof body);

		m.include = r->include;
		snprintf(m.pattern, sizeof m.pattern, "%s", r->pattern);
		msg_rule_encode(&w, &m);
		if (end_pipe_send(&d->pipes[i], MSG_RULE, body, w.used))
			return -1;
	}
	return 0;
}

/* Sends the names that earlier sessions put into the target. */
static int send_taken(const struct orders_send *d)
{
	static uint8_t body[NAME_MAX_WIRE + 16];
	const struct taken *t = d->job->taken;

	for (size_t k = 0; t && k < t->count; k++) {
		struct writer w = writer_of(body, sizeof body);
		struct msg_want m;

		snprintf(m.name, sizeof m.name, "%s", t->names[k]);
		msg_want_encode(&w, &m);
		if (end_pipe_send(&d->pipes[END_SINK], MSG_TAKEN, body, w.used))
			return -1;
	}
	return 0;
}

int orders_send_all(struct orders_send *d)
{
	int rc = random_bytes(d->secret, sizeof d->secret);

	for (int i = 0; i < 2 && rc == 0; i++) {
		rc = send_start(d, i);
		if (!rc)
			rc = send_wants(d, i);
		if (!rc)
			rc = send_rules(d, i);
	}
	return rc || send_taken(d) ? -1 : 0;
}

int orders_send_listed(const struct orders_send *d, const char *name)
{
	static uint8_t body[NAME_MAX_WIRE + 16];
	struct writer w = writer_of(body, sizeof body);
	struct msg_want m;

	snprintf(m.name, sizeof m.name, "%s", name);
	msg_want_encode(&w, &m);
	for (int i = 0; i < 2; i++) {
		if (end_pipe_send(&d->pipes[i], MSG_LISTED, body, w.used))
			return -1;
	}
	return 0;
}

int orders_send_go(const struct orders_send *d)
{
	for (int i = 0; i < 2; i++) {
		if (end_pipe_send(&d->pipes[i], MSG_GO, NULL, 0))
			return -1;
	}
	return 0;
}
