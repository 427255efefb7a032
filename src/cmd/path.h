/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PATH_H
#define CMD_PATH_H

/*
 * rdcheck's path to another host: what a survey finds there, by which addresses it is reached,
 * and what becomes of lanes between the two ends.
 */

#include "cmd/findings.h"
#include "cmd/link.h"
#include "lane/adapter.h"

struct path_address {
	union address at;
	bool rdma; /* an adapter that can be used stands behind it */
};
struct path_host {
	struct path_address at[OFFER_MAX];
	unsigned count;
	bool has_ports; /* it told of a port of an adapter */
	bool rdma; /* an address of it has an adapter that can be used */
	bool has_kind[ADAPTER_IWARP + 1];
};

struct path {
	const struct options *o;
	struct findings *findings;
	const char *far; /* as ssh wants it */
	char near_name[HOST_MAX];
	struct path_host near, has; /* this host, and the far one */
	struct link link; /* to the survey there */
	uint64_t control_ns; /* a round trip over ssh, 0: not known */
};

void path_init(struct path *p, const struct options *o, const char *far, struct findings *f);
/* A finding of this host. */
void path_near_has(struct path *p, const struct msg_finding *m);
/* Look at the other host and at the way there. OUT_DONE, OUT_TRANSPORT when not fit, or why it
 * could not be looked at. */
enum outcome path_look(struct path *p);

/* ---- path_survey.c: its first part, the far host's own findings.  0 or -1 ---- */
int path_survey(struct path *p);
/* ---- path_run.c: lanes between the ends.  OUT_DONE, or OUT_SIGNAL ---- */
enum outcome path_run(struct path *p);
/* ---- path_firewall.c: what may have been in their way; rdma NULL: it was not tried ---- */
void path_firewall(struct path *p, const struct failure *rdma, const struct failure *tcp);

#endif
