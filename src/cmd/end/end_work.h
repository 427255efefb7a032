/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_END_WORK_H
#define CMD_END_END_WORK_H

/*
 * An end at work: what START says is done over a session.  A conductor sends START to the ends of
 * rdcp; rdsend and rdrecv make one for themselves.
 */

#include <stdatomic.h>
#include "cmd/end/start_recv.h"
#include "cmd/process/watch.h"
#include "session/session.h"

struct end_work {
	struct start start;
	struct copy *copy;
	atomic_bool opened; /* a failure of the session is the copy's from then on */
	struct session *session; /* while it can be sent over */
	struct tally tally;
	struct copy_result result;
	struct msg_verdict verdict;
	struct watch watch;
};

/* The options of the session, with frames and failures going to the copy.  They have START's
 * secret: wipe them. */
void end_work_session(struct end_work *w, struct session_opts *so);
/* For session_open(): make w->copy.  0, or -1 with a failure. */
int end_work_begin(struct end_work *w);
/* Fill in the verdict of a copy, while the session is there to ask. */
void end_work_gather(struct end_work *w);
/* host: of the failure of a copy, "" for this one. */
void end_work_failed_at(const struct end_work *w, struct failure *f, char host[static HOST_MAX]);

#endif
