/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_FINDINGS_H
#define CMD_CHECK_FINDINGS_H

/* What rdcheck shows: findings as lines, or as objects of --json, and how many there were of each
 * kind. */

#include "cmd/cli/options.h"

struct findings {
	const struct options *o;
	char host[HOST_MAX]; /* whose they are; "" before the first */
	bool titled; /* that host's title has been printed */
	bool tcp_is_enough; /* --transport=tcp: what stands in the way of RDMA alone is a warning */
	unsigned count[FINDING_FAILURE + 1];
};

void findings_begin(struct findings *f, const struct options *o, const char *far);
/* Those that follow are of this place: a host's name, or a path between two. */
void findings_set_host(struct findings *f, const char *place);
void findings_take(struct findings *f, const struct msg_finding *m);
/* The path's, which have no wire to come over. */
void findings_add(struct findings *f, enum finding_state state, const char *name,
		  const char *subject, const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
void findings_end(const struct findings *f, enum outcome code);

#endif
