/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RUN_H
#define COPY_RUN_H

/*
 * What a source and a sink share while they run: the lock, the condition, and what frames reported.
 *
 * Never call into the session or the lanes with the lock held: copy_on_fail() takes it, in
 * whichever thread detects the failure.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/worker.h"
#include "copy/copy.h"

/* How a role handles its peer's frames. */
struct copy_role {
	enum role role;
	/* A frame that only this role receives.  0, or -1 with the session's failure.  Called in
	 * the control thread; must not wait. */
	int (*on_frame)(struct copy *c, const struct frame *f);
	/* The session failed: wakes threads that wait for something other than c->changed.  Called
	 * with the lock held.  NULL: there are none. */
	void (*wake)(void *running);
};

struct copy {
	const struct copy_role *role;
	atomic_bool failed; /* the session failed; readable without the lock */
	atomic_bool done_sent; /* sink: from now on lanes may be aborted */

	pthread_mutex_t lock; /* of everything below, and of the source's and sink's files */
	pthread_cond_t changed; /* something below changed; monotonic clock */
	struct session *session;
	void *running; /* the struct source or struct sink; NULL before and after the run */
	bool end_received, end_sent, done_received, times_received;
	struct msg_total total; /* from END (at a sink) or DONE (at a source) */

	struct tally *tally;
	struct copy_result *result;
	pthread_mutex_t report_lock; /* serializes the callbacks of result */
	unsigned failures; /* all failures, at both ends */
	unsigned vanished; /* of failures: sources that vanished */
	unsigned failed_here; /* of failures: at this end, without vanished sources and removals */
	unsigned undeleted; /* of failures: what could not be deleted at the target */
	struct failure max_delete_failure; /* --max-delete left something there; OUT_DONE: no */
	/* metadata of something stored could not be preserved; OUT_DONE: no */
	struct failure unkept;
	struct failure first; /* of all failures */
	bool first_at_peer;
};

/* For a role's on_frame(): fails because of an unexpected frame.  -1. */
int copy_fail_unexpected(const struct frame *f);
/* A run counts in t and fills in r, whose results are none so far. */
void copy_begin(struct copy *c, struct tally *t, struct copy_result *r);
/* From now on frames reach running; NULL: no longer. */
void copy_attach(struct copy *c, struct session *session, void *running);

bool copy_stopped(void *copy);
/* Was a file interrupted because the run stops?  Then this is this thread's failure, not the
 * file's. */
bool copy_interrupted(struct copy *c);
/* Counts a file's failure, and keeps the first one.  Lock held. */
void copy_count_failure(struct copy *c, const struct failure *f, bool at_peer);
/* Counts a source that was stored but could not be removed.  Lock held. */
void copy_count_unremoved(struct copy *c, const struct failure *f);
/* Counts a failed deletion at the target, or the limit of --max-delete (OUT_MAX_DELETE).  Lock
 * held. */
void copy_count_undeleted(struct copy *c, const struct failure *f, bool at_peer);
/* Records that things were stored without metadata that was asked for (OUT_SOME_FILES).  Lock
 * held. */
void copy_count_unkept(struct copy *c, const struct failure *f, bool at_peer);
/* Calls on_file().  Lock not held. */
void copy_report_failure(struct copy *c, const char *name, const struct failure *f);
/* Calls on_event(), if it is set; the caller checks rules->events.  Lock not held. */
void copy_report_event(struct copy *c, const struct msg_event *e);
/* Calls on_taken(), if it is set.  Lock not held. */
void copy_report_taken(void *copy, const char *name);
/* What the run returns at its end; only: an only file's own failure. */
int copy_verdict(struct copy *c, bool only);
/* Sends the time of this end's lanes. */
int copy_send_times(struct copy *c, const struct msg_times *m);
/* Makes the session's failure this thread's.  -1. */
int copy_fail_session(struct copy *c);
/* Joins n threads.  Wakes them repeatedly until they have ended, in case they are blocked. */
void copy_join(struct worker *w, unsigned n);
/* Counts bytes that were read, left out or stored, and the time.  Any thread. */
void tally_bytes(struct tally *t, uint64_t len);

#endif
