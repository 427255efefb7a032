/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_PATH_H
#define CMD_CHECK_PATH_H

/*
 * rdcheck's path to another host: what surveys find at both ends, by which addresses the other
 * one is reached, and what becomes of lanes between the two.
 */

#include "cmd/check/findings.h"
#include "cmd/conductor/end_pipe.h"
#include "host/adapter.h"

struct path_address {
	union address at;
	bool rdma; /* an adapter that can be used stands behind it */
};
struct path_port {
	char name[FINDING_SUBJECT];
	enum adapter_kind kind;
};
/* What is remembered of a host's findings. */
struct path_host {
	struct end_pipe link; /* to its survey */
	struct path_address at[OFFER_MAX];
	unsigned count;
	struct path_port ports[ADAPTERS_MAX];
	unsigned port_count;
	bool rdma; /* an address of it has an adapter that can be used */
	bool has_kind[ADAPTER_IWARP + 1]; /* that stands behind one */
	uint64_t control_ns; /* a round trip to it, 0: not known */
};

struct host_path {
	const struct options *o;
	struct findings *findings;
	const char *far; /* as ssh wants it; "": this host alone is looked at */
	struct path_host near, has; /* this host, and the far one */
	struct path_host *now; /* the one whose findings come */
};

void path_init(struct host_path *p, const struct options *o, const char *far, struct findings *f);
/* Look at this host, the other one and the way there. OUT_DONE, or why it could not be looked
 * at. */
enum outcome path_look(struct host_path *p);

/* ---- path_run.c: lanes between the ends.  OUT_DONE, or OUT_SIGNAL ---- */
enum outcome path_run(struct host_path *p);
/* ---- path_firewall.c: what may have been in their way; rdma NULL: it was not tried ---- */
void path_firewall(struct host_path *p, const struct failure *rdma, const struct failure *tcp);

#endif
