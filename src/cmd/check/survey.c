/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/check/survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void finding_compose(struct msg_finding *m, enum finding_state state, const char *name,
		     const char *subject, const char *remedy, const char *fmt, va_list ap)
{
	*m = (struct msg_finding){.state = (uint8_t)state};
	snprintf(m->name, sizeof m->name, "%s", name);
	snprintf(m->subject, sizeof m->subject, "%s", subject);
	snprintf(m->remedy, sizeof m->remedy, "%s", remedy ? remedy : "");
	vsnprintf(m->what, sizeof m->what, fmt, ap);
}

void survey_found(const struct survey *s, enum finding_state state, const char *name,
		  const char *subject, const char *remedy, const char *fmt, ...)
{
	struct msg_finding m;
	va_list ap;

	va_start(ap, fmt);
	finding_compose(&m, state, name, subject, remedy, fmt, ap);
	va_end(ap);
	s->found(s->ctx, &m);
}

const char *survey_port_text(const struct adapter *a, char *to, size_t size)
{
	snprintf(to, size, "%s port %u", a->device, a->port);
	return to;
}

bool survey_is_here(const struct adapter *a)
{
	return a->kind == ADAPTER_INFINIBAND || (a->netdev[0] && a->netdev_mtu);
}

bool survey_has_active(const struct survey *s)
{
	for (unsigned i = 0; i < s->port_count; i++)
		if (s->ports[i].state == PORT_ACTIVE && survey_is_here(&s->ports[i]))
			return true;
	return false;
}

int survey_host(struct survey *s)
{
	snprintf(s->sys, sizeof s->sys, "%s/sys", s->top);
	if (adapters_list(s->sys, &s->ports, &s->port_count))
		return -1;
	survey_kernel(s);
	survey_ports(s);
	survey_memory(s);
	survey_addresses(s);
	free(s->ports);
	s->ports = NULL;
	return 0;
}
