/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_CONDUCTOR_H
#define CMD_CONDUCTOR_CONDUCTOR_H

/*
 * The conductor of one session: starts two ends, tells them what to do, passes on what they say
 * to each other, and knows how it ended.  One thread, one poll(2); no file of the copy is
 * touched here.
 */

#include "cmd/cli/name_list.h"
#include "cmd/cli/options.h"
#include "cmd/cli/rule_list.h"
#include "cmd/conductor/end_pipe.h"
#include "cmd/output/progress.h"
#include "cmd/output/report.h"
#include "copy/names/taken.h"

/* What rdbench asks of the ends, and what they say. */
struct measure {
	uint64_t flags; /* START_MEMORY, START_PROBE ... */
	uint64_t bytes; /* START.memory_bytes */
	/* The far end is `rdcp --ends', kept from one conductor_run() to the next; child.pid 0: it
	 * is to be started.  NULL where both ends are here. */
	struct end_pipe *kept;
	struct msg_verdict verdicts[2]; /* LINK_SOURCE, LINK_SINK */
};

struct conductor_job {
	const struct options *o;
	const char *source_host, *sink_host; /* as ssh wants them; "" for this host */
	const char *const *names; /* without their host */
	unsigned count;
	const char *target;
	bool source_stdio, sink_stdio; /* "-" */
	bool many; /* several sources in all: DST is a directory */
	const struct rule_list *rules;
	struct name_list *list; /* --files-from, NULL */
	/* Of several sessions that put names into target: what those before this one put there,
	 * sorted, and what this one does. NULL: it is the only one. */
	const struct taken *taken;
	struct taken *brought;
	struct progress *progress;
	struct measure *measure; /* NULL: a copy */
};

/* Run it; r tells all, r->failure how it ended. */
void conductor_run(const struct conductor_job *j, struct report *r);

#endif
