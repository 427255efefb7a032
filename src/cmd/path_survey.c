/* SPDX-License-Identifier: Apache-2.0 */

/* A survey on the far host: started as rdcp's end is, over ssh with a fixed command. */

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "cmd/explain.h"
#include "cmd/far.h"
#include "cmd/path.h"

enum {
	FINDINGS_MOST = 512,
	PINGS = 5,
	EXIT_MS = 2000,
};

struct caller {
	struct path *p;
	struct channel *channel;
	unsigned taken;
};

static void keep_address(struct path_host *h, const struct msg_finding *m)
{
	union address a = {.sa = {.sa_family = m->family == 4 ? AF_INET : AF_INET6}};

	if (strcmp(m->name, "port") == 0)
		h->has_ports = true;
	for (int kind = ADAPTER_INFINIBAND; kind <= ADAPTER_IWARP; kind++)
		if (strcmp(m->name, "port") == 0 && strstr(m->what, adapter_kind_text(kind)))
			h->has_kind[kind] = true;
	h->rdma = h->rdma || m->rdma;
	if (!m->family || h->count == OFFER_MAX)
		return;
	if (m->family == 4)
		memcpy(&a.in4.sin_addr, m->addr, 4);
	else
		memcpy(&a.in6.sin6_addr, m->addr, 16);
	h->at[h->count++] = (struct path_address){.at = a, .rdma = m->rdma};
}

void path_near_has(struct path *p, const struct msg_finding *m)
{
	keep_address(&p->near, m);
}

/* ---- what it says ---------------------------------------------------------------------------- */

static uint64_t deadline(const struct caller *c)
{
	return clock_ms() + (uint64_t)c->p->o->timeout_ms;
}

/* The next frame.  0, or -1 when it is gone, silent or talks nonsense. */
static int hear(struct caller *c, struct frame *f)
{
	struct link *l = &c->p->link;
	/* Before it greets, ssh may ask for a password. */
	int rc = frame_read(c->channel, &l->in, l->greeted ? deadline(c) : 0, f), status = 0;
	size_t rest = 0;

	if (rc > 0)
		return 0;
	if (rc == 0 || failed()->code == OUT_PEER_LOST || !l->greeted) {
		bool reaped = child_wait(&l->child, &status, clock_ms() + EXIT_MS);

		framer_rest(&l->in, &rest);
		if (!l->greeted && (rest || !reaped))
			return explain_text(l);
		return l->greeted ? explain_death(l, status, reaped)
				  : explain_exit(l, c->p->o, status);
	}
	return -1;
}

static int take_finding(struct caller *c, const struct frame *f)
{
	struct msg_finding m;

	if (msg_finding_decode(f, &m))
		return -1;
	if (++c->taken > FINDINGS_MOST)
		return fail_as(OUT_PROTOCOL, "%s finds more than there can be", c->p->link.name);
	keep_address(&c->p->has, &m);
	findings_take(c->p->findings, &m);
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
				       c->p->link.name, message_name(f.type));
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
			return fail_as(OUT_PROTOCOL, "%s did not answer a PING", c->p->link.name);
		if (!c->p->control_ns || ns < c->p->control_ns)
			c->p->control_ns = ns;
	}
	return 0;
}

/* ---- the call ----------------------------------------------------------------------------------
 */

static int talk(struct caller *c)
{
	struct link *l = &c->p->link;
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

int path_survey(struct path *p)
{
	struct caller c = {.p = p};
	struct link *l = &p->link;
	int in, out, rc, status;

	link_init(l);
	link_name(l, p->far);
	if (far_start(p->o, p->far, "--survey", &l->child))
		return -1;
	in = fcntl(l->child.out, F_DUPFD_CLOEXEC, 3);
	out = fcntl(l->child.in, F_DUPFD_CLOEXEC, 3);
	if (in < 0 || out < 0 || channel_over_fds(in, out, &c.channel)) {
		rc = fail_as(OUT_START, "talk to %s: %m", l->child.what);
		goto out;
	}
	channel_set_peer(c.channel, l->name);
	rc = talk(&c);
out:
	channel_free(c.channel);
	child_close_in(&l->child);
	if (!rc)
		child_wait(&l->child, &status, clock_ms() + EXIT_MS);
	link_close(l);
	return rc;
}
