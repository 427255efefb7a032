/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_SURVEY_H
#define CMD_CHECK_SURVEY_H

/*
 * What there is on this host for RDMA, or stands in its way: each thing that is looked at is a
 * finding, with the remedy where there is one.  Nothing is changed, and nobody is asked but this
 * host.
 */

#include <stdarg.h>
#include "host/adapter.h"
#include "protocol/message.h"

struct survey {
	const char *top; /* before /sys, /dev, /etc, /proc and /lib/modules: "", or a test's tree */
	void (*found)(void *ctx, const struct msg_finding *m);
	void *ctx;
	/* filled in by survey_host() */
	char sys[256]; /* /sys below top */
	struct adapter *ports;
	unsigned port_count;
};

/* Everything.  0, or -1 when memory ran out. */
int survey_host(struct survey *s);

/* Put together what was found.  remedy may be NULL. */
void finding_compose(struct msg_finding *m, enum finding_state state, const char *name,
		     const char *subject, const char *remedy, const char *fmt, va_list ap)
	__attribute__((format(printf, 6, 0)));
/* A finding of the survey.  remedy may be NULL. */
void survey_found(const struct survey *s, enum finding_state state, const char *name,
		  const char *subject, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* "mlx5_0 port 1" */
const char *survey_port_text(const struct adapter *a, char *to, size_t size);
bool survey_has_active(const struct survey *s);
/* Is its network device in this network namespace?  Adapters are seen in all of them. */
bool survey_is_here(const struct adapter *a);

/* ---- its parts -------------------------------------------------------------------------- */

void survey_kernel(const struct survey *s); /* build, modules, device files, functions of PCI */
void survey_ports(const struct survey *s);
void survey_memory(const struct survey *s);
void survey_addresses(const struct survey *s);

#endif
