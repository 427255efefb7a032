/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_CONDUCTOR_IMPL_H
#define CMD_CONDUCTOR_CONDUCTOR_IMPL_H

/* The private parts of a conductor: conductor.c has its loop and its end, conductor_frames.c
 * handles the frames from the ends, daemon_frames.c those that a rdcpd makes special,
 * conductor_verdict.c how the ends and the whole run ended. */

#include "base/fail.h"
#include "cmd/conductor/bridge.h"
#include "cmd/conductor/conductor.h"
#include "cmd/conductor/detour.h"
#include "cmd/conductor/end_pipe.h"
#include "cmd/conductor/orders_send.h"

enum {
	CANCEL_MS = 1500, /* time for the ends to exit after a signal */
	/* between the two ends' final frames, unless the second end removes files */
	VERDICT_WAIT_MS = 5000,
	/* the same if the second end was silent, or the first reported it silent */
	SILENT_VERDICT_WAIT_MS = 500,
	DEATH_MS = 300, /* time between a child's death and the end of its pipe */
	EXIT_MS = 2000, /* time for the children to exit after that */
};

struct conductor {
	const struct conductor_job *job;
	int listener; /* the end that listens first */
	struct detour *detour;
	bool detoured;
	struct bridge *bridge; /* both ends are at a rdcpd, else NULL */
	struct failure cause; /* the first failure; OUT_DONE: none */
	char cause_host[HOST_MAX];
	int signo;
	bool hurried; /* by a second signal */
	uint64_t deadline_ms; /* when the ends are terminated; 0: never */
	struct orders_send orders;
	struct name_list *list; /* while the list is being read, else NULL */
	struct end_pipe pipes[2];
};

/* Whether an end is finished. With job->measure its verdict finishes it: what comes after that is
 * the next end on the same connection. */
static inline bool conductor_is_finished(const struct conductor *c, const struct end_pipe *l)
{
	return l->gone || (c->job->measure && l->has_verdict);
}
struct end_pipe *conductor_other(struct conductor *c, const struct end_pipe *l);
/* Whether the user requested lanes over ssh. */
bool conductor_wants_ssh(const struct conductor *c);
/* Terminates the ends after this time at the latest; an earlier deadline stays. */
void conductor_terminate_by(struct conductor *c, uint64_t ms);
/* Records the session's first failure, or one that counts more; host: where it occurred, "" for
 * here. */
void conductor_record_failure(struct conductor *c, const struct failure *f, const char *host);
/* The other end must send its own soon. */
void conductor_take_verdict(struct conductor *c, struct end_pipe *l, const struct msg_verdict *m);
/* Whether the sink has all that could be copied, and the source has removed what it should. */
bool conductor_is_all_done(const struct conductor *c);
/* The sink is done, and the source removes files, which takes as long as it takes: when the source
 * counts as silent (clock_ms). 0: not so. */
uint64_t conductor_removals_due(const struct conductor *c);
/* Call when no more frames come: an end that did not say how it ended has failed. */
void conductor_note_missing_verdict(struct conductor *c);
void conductor_fill_report(const struct conductor *c, struct report *r);
/* Sends an end a failure that its peer cannot report to it. host: where it occurred. */
void conductor_send_error(struct end_pipe *l, const struct failure *f, const char *host);
/* Reports this thread's failure, which the ends do not know, to both ends, each as if from the
 * other. */
void conductor_fail(struct conductor *c, const char *host);
/* Handles a frame between the ends if it must not be passed on as it is: *handled. Returns 0, or -1
 * with a failure. */
int daemon_frames_take(struct conductor *c, struct end_pipe *l, const struct frame *f,
		       bool *handled);
/* Two daemons: opens c->bridge, and reports to both ends that their lanes are connected. */
int daemon_frames_begin_bridge(struct conductor *c);
int daemon_frames_choose(struct conductor *c);
/* With --encrypt=off: lanes go from this host to a daemon. */
void daemon_frames_warn_of_clear(const struct conductor *c);
/* Handles the frames of l that have arrived, as far as the other end can take them. */
void conductor_take_frames(struct conductor *c, struct end_pipe *l);

#endif
