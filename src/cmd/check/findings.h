/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_FINDINGS_H
#define CMD_CHECK_FINDINGS_H

/* The output of rdcheck: findings as lines or as --json objects, and their number per state. */

#include "cmd/cli/options.h"

struct findings {
	const struct options *o;
	char host[HOST_MAX]; /* host of the findings; "" before the first */
	bool titled; /* the title of that host has been printed */
	bool tcp_is_enough; /* --transport=tcp: problems of RDMA alone are warnings */
	unsigned count[FINDING_FAILURE + 1];
};

void findings_begin(struct findings *f, const struct options *o, const char *far);
/* Sets the place of the following findings: a host's name, or a path between two. */
void findings_set_host(struct findings *f, const char *place);
void findings_take(struct findings *f, const struct msg_finding *m);
/* Adds a finding of the path, which rdcheck makes itself. */
void findings_add(struct findings *f, enum finding_state state, const char *name,
		  const char *subject, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
void findings_end(const struct findings *f, enum outcome code);

#endif
