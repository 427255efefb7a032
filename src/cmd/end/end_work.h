/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_END_WORK_H
#define CMD_END_END_WORK_H

/*
 * An end at work: carries out START over a session. A conductor sends START to the ends of rdcp;
 * rdsend and rdrecv make their own.
 */

#include <stdatomic.h>
#include "cmd/end/orders.h"
#include "cmd/process/watch.h"
#include "session/session.h"

struct end_work {
	struct orders orders;
	struct copy *copy;
	_Atomic uint64_t frames; /* about files, that came */
	atomic_bool opened; /* from then on a failure of the session is a failure of the copy */
	struct session *session; /* while frames can be sent over it */
	struct tally tally;
	struct copy_result result;
	struct msg_verdict verdict;
	struct watch watch;
};

/* Fills in the options of the session; its frames and failures go to the copy. They contain START's
 * secret: the caller must wipe them. */
void end_work_fill_session(struct end_work *w, struct session_opts *so);
/* Makes w->copy, for session_open(). Returns 0, or -1 with a failure. */
int end_work_begin(struct end_work *w);
/* Fills in the verdict of a copy. Call it while the session still exists. */
void end_work_fill_verdict(struct end_work *w);
/* Gets the session's failure, if it failed, and the host where the copy failed ("": this host). */
void end_work_failed_at(const struct end_work *w, struct failure *f, char host[static HOST_MAX]);

#endif
