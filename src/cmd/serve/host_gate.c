/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/host_gate.h"

#include <stdio.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/log.h"

enum { LINE_MS = 1000 };

static void log_refusal(struct host_gate *g, const struct stranger *from, const char *why)
{
	char text[80], more[48] = "";

	if (clock_ms() < g->quiet_until) {
		g->unlogged++;
		return;
	}
	if (g->unlogged)
		snprintf(more, sizeof more, " (and %u connections before)", g->unlogged);
	log_warn("rejected %s: %s%s", stranger_text(from, text, sizeof text), why, more);
	g->quiet_until = clock_ms() + LINE_MS;
	g->unlogged = 0;
}

bool host_gate_admits(struct host_gate *g, const struct settings *s, const struct stranger *from)
{
	union address a = {.sa = {.sa_family = AF_UNSPEC}};
	socklen_t len = sizeof a;
	char unknown[128];

	if (s->allow.count == 0 && s->deny.count == 0)
		return true;
	if (getpeername(from->fd, &a.sa, &len) < 0) {
		snprintf(unknown, sizeof unknown, "look up its address: %m");
		log_refusal(g, from, unknown);
		return false;
	}
	if (host_rules_admit(&s->allow, &s->deny, &a))
		return true;
	log_refusal(g, from, "its address may not use rdcpd");
	return false;
}
