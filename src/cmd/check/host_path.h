/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_HOST_PATH_H
#define CMD_CHECK_HOST_PATH_H

/*
 * rdcheck's examination of the path to another host: surveys of both ends, the addresses at which
 * each host is reached, and test lanes between the two.
 */

#include "cmd/check/findings.h"
#include "cmd/conductor/end_pipe.h"
#include "host/adapter.h"

struct surveyed_address {
	union address at;
	bool rdma; /* it belongs to an adapter that can be used */
};
struct surveyed_port {
	char name[FINDING_SUBJECT];
	enum adapter_kind kind;
};
/* What rdcheck keeps of a host's findings. */
struct surveyed_host {
	struct end_pipe pipe; /* to its survey */
	struct surveyed_address at[OFFER_MAX];
	unsigned count;
	struct surveyed_port ports[ADAPTERS_MAX];
	unsigned port_count;
	bool rdma; /* one of its addresses has an adapter that can be used */
	bool has_kind[ADAPTER_IWARP + 1]; /* kinds of the adapters that have addresses */
	uint64_t control_ns; /* a round-trip time to the host; 0: unknown */
};

struct host_path {
	const struct options *o;
	struct findings *findings;
	const char *far; /* as ssh wants it; "": examine only this host */
	struct surveyed_host near_host, far_host;
	struct surveyed_host *surveyed; /* the host whose findings arrive now */
};

void host_path_init(struct host_path *p, const struct options *o, const char *far,
		    struct findings *f);
/* Examines this host, the other one and the path to it. Returns OUT_DONE, or why the examination
 * failed. */
enum outcome host_path_examine(struct host_path *p);

/* ---- host_path_lanes.c: test lanes between the ends. OUT_DONE, or why they could not be tried:
 * OUT_SIGNAL, OUT_START, OUT_MEMORY ---- */
enum outcome host_path_test_lanes(struct host_path *p);
/* ---- host_path_firewall.c: what may have blocked them; rdma NULL: RDMA was not tried ---- */
void host_path_report_firewall(struct host_path *p, const struct failure *rdma,
			       const struct failure *tcp);

#endif
