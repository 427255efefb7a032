/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_SURVEY_H
#define CMD_CHECK_SURVEY_H

/*
 * What this host has for RDMA, and what prevents it. Each check produces a finding, with a remedy
 * if there is one. A survey changes nothing, and contacts no other host.
 */

#include <stdarg.h>
#include "host/adapter.h"
#include "protocol/message.h"

struct survey {
	/* prefix of /sys, /dev, /etc, /proc and /lib/modules: "", or a test's tree */
	const char *top;
	void (*found)(void *ctx, const struct msg_finding *m);
	void *ctx;
	/* set by survey_host() */
	char sys[256]; /* /sys below top */
	struct adapter *ports;
	unsigned port_count;
};

/* Runs the whole survey. Returns 0, or -1 if memory ran out. */
int survey_host(struct survey *s);

/* Composes a finding. remedy may be NULL. */
void finding_compose(struct msg_finding *m, enum finding_state state, const char *name,
		     const char *subject, const char *remedy, const char *fmt, va_list ap)
	__attribute__((format(printf, 6, 0)));
/* Reports a finding of the survey. remedy may be NULL. */
void survey_found(const struct survey *s, enum finding_state state, const char *name,
		  const char *subject, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* "mlx5_0 port 1" */
const char *survey_port_text(const struct adapter *a, char *to, size_t size);
bool survey_has_active(const struct survey *s);
/* Whether its network device is in this network namespace. Adapters are visible in all of them. */
bool survey_is_here(const struct adapter *a);

/* ---- parts of the survey ------------------------------------------------------------------ */

void survey_kernel(const struct survey *s); /* build, modules, device files, PCI functions */
void survey_ports(const struct survey *s);
void survey_memory(const struct survey *s);
void survey_addresses(const struct survey *s);
void survey_traffic(const struct survey *s, const struct adapter *a); /* of an active port */
struct dcb;
void survey_pfc(const struct survey *s, const struct adapter *a, const struct dcb *d);
void survey_ordering(const struct survey *s, const struct adapter *a);

#endif
