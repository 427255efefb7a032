/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_CONDUCTOR_H
#define CMD_CONDUCTOR_CONDUCTOR_H

/*
 * The conductor of one session: starts two ends, sends their orders, relays the frames between
 * them, and reports the result. It has one thread with one poll(2), and touches no file of the
 * copy.
 */

#include "cmd/cli/name_list.h"
#include "cmd/cli/options.h"
#include "cmd/cli/rule_list.h"
#include "cmd/conductor/end_pipe.h"
#include "cmd/output/progress.h"
#include "cmd/output/report.h"
#include "copy/names/taken.h"

/* What rdbench orders the ends to do, and their results. */
struct measure {
	uint64_t flags; /* START_MEMORY, START_PROBE ... */
	uint64_t bytes; /* START.memory_bytes */
	/* A far end that is `rdcp --ends', kept from one conductor_run() to the next; child.pid 0:
	 * not started yet. NULL if both ends are on this host. */
	struct end_pipe *kept;
	struct msg_verdict verdicts[2]; /* END_SOURCE, END_SINK */
	/* No warning of an end is printed. The first one is kept, with its host's name if that is
	 * another host. */
	bool keeps_warning;
	char warning[HOST_MAX + TEXT_MAX + 4];
};

struct conductor_job {
	const struct options *o;
	const char *source_host, *sink_host; /* as ssh wants them; "" for this host */
	const char *const *names; /* the SRCs, without their host */
	unsigned count;
	const char *target;
	bool source_stdio, sink_stdio; /* "-" */
	bool many; /* several sources in total: DST is a directory */
	const struct rule_list *rules;
	struct name_list *list; /* --files-from, or NULL */
	/* For one of several sessions that put names into target: the names that earlier sessions
	 * put there, sorted, and those that this one puts there. NULL: the only session. */
	const struct taken *taken;
	struct taken *added;
	struct progress *progress;
	struct measure *measure; /* NULL: a copy */
};

/* Runs the session. r gets all results; r->failure says how it ended. */
void conductor_run(const struct conductor_job *j, struct report *r);

#endif
