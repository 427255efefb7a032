/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_CONDUCTOR_IMPL_H
#define CMD_CONDUCTOR_CONDUCTOR_IMPL_H

/* A conductor's inside: conductor.c is its turns and how it ends, conductor_hear.c what it does
 * with what the ends say. */

#include "base/fail.h"
#include "cmd/conductor/conductor.h"
#include "cmd/conductor/detour.h"
#include "cmd/conductor/end_pipe.h"
#include "cmd/conductor/start_send.h"

enum {
	CANCEL_MS = 1500, /* for the ends to go after a signal */
	LAST_WORDS_MS = 5000, /* between the first end's last word and the second's */
	SILENT_WORDS_MS = 500, /* where the second one has been silent, or the first found it so */
	DEATH_MS = 300, /* between a child's death and the end of its pipe */
	EXIT_MS = 2000, /* for the children to exit after that */
};

struct conductor {
	const struct conductor_job *job;
	struct end_pipe links[2];
	int listener; /* which of them listens at first */
	struct detour *detour;
	bool detoured;
	struct failure cause; /* the first, OUT_DONE: none */
	char cause_host[HOST_MAX];
	int signo;
	uint64_t deadline_ms; /* when the ends are ended, 0: never */
	struct start_send orders;
	struct name_list *list; /* while it is read; NULL */
};

/* After its last word comes what the next end of the same connection says first. */
static inline bool conductor_is_through(const struct conductor *c, const struct end_pipe *l)
{
	return l->gone || (c->job->measure && l->has_verdict);
}
struct end_pipe *conductor_other(struct conductor *c, const struct end_pipe *l);
/* Did the user ask for lanes over ssh? */
bool conductor_wants_ssh(const struct conductor *c);
/* The ends are ended after so much time at the latest. */
void conductor_end_by(struct conductor *c, uint64_t ms);
/* The first failure is the session's; host: where, "" for here. */
void conductor_record_failure(struct conductor *c, const struct failure *f, const char *host);
/* An end is told of a failure that its peer can't tell it of; host: where. */
void conductor_send_error(struct end_pipe *l, const struct failure *f, const char *host);
/* This thread's failure is one that the ends don't know of: both are told, as if by the other
 * one. */
void conductor_fail(struct conductor *c, const char *host);
/* Frames of l that are there, as far as the other end can take them. */
void conductor_hear(struct conductor *c, struct end_pipe *l);

#endif
