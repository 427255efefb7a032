/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RUN_H
#define COPY_RUN_H

/*
 * What source and sink have in common while they run: the lock, the condition, and what frames
 * have told.
 *
 * Never call into the session or the lanes with the lock held: on_fail() takes it, in whatever
 * thread the failure is found.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/worker.h"
#include "copy/copy.h"

/* What a role does with its peer's frames. */
struct copy_role {
	enum role role;
	/* A frame that only this role gets: 0, or -1 with the session's failure.  Control thread;
	 * must not wait. */
	int (*on_frame)(struct copy *c, const struct frame *f);
	/* The session failed: wake the threads that do not wait for c->changed.  NULL: there are
	 * none.  Lock held. */
	void (*wake)(void *running);
};

struct copy {
	const struct copy_role *role;
	atomic_bool failed; /* the session did; also for those who don't hold the lock */
	atomic_bool over; /* sink: DONE is said, lanes may go */

	pthread_mutex_t lock; /* of all below, and of source's and sink's files */
	pthread_cond_t changed; /* something below did; monotonic clock */
	struct session *session;
	void *running; /* the struct source or struct sink of its role; NULL before and after */
	bool end_came, end_sent, done_came, times_came;
	struct msg_total total; /* of END (sink) or DONE (source) */

	struct tally *tally;
	struct copy_result *result;
	pthread_mutex_t telling; /* of result->on_file() and on_event() */
	unsigned failures; /* files, here and there, and: */
	unsigned vanished; /* sources that did */
	unsigned failed_here; /* failures of this end but those, and but removals */
	unsigned undeleted; /* what could not be deleted at the target */
	struct failure left; /* --max-delete left some there; OUT_DONE: it did not */
	struct failure unkept; /* metadata of what is stored could not be kept; OUT_DONE: all was */
	struct failure first; /* of these */
	bool first_at_peer;
};

/* For a role's on_frame: it does not expect that frame; -1. */
int copy_fail_unexpected(const struct frame *f);
/* Frames reach running from here on; NULL: none any more. */
void copy_attach(struct copy *c, struct session *session, void *running);

bool copy_stopped(void *copy);
/* Is that why a file failed?  Then it is no fault of the file, and this thread's failure. */
bool copy_interrupted(struct copy *c);
/* A file failed: count it, remember the first one's cause.  Lock held. */
void copy_count_failure(struct copy *c, const struct failure *f, bool at_peer);
/* It is stored, and its source could not be removed.  Lock held. */
void copy_count_unremoved(struct copy *c, const struct failure *f);
/* Something was not deleted at the target, or not all (OUT_MAX_DELETE).  Lock held. */
void copy_count_undeleted(struct copy *c, const struct failure *f, bool at_peer);
/* Things are stored, but metadata that was asked for could not be kept (OUT_SOME_FILES).  Lock
 * held. */
void copy_count_unkept(struct copy *c, const struct failure *f, bool at_peer);
/* Tell on_file(). Lock not held. */
void copy_report_failure(struct copy *c, const char *name, const struct failure *f);
/* Tell on_event(), if events are wanted (o's rules). Lock not held. */
void copy_report_event(struct copy *c, const struct msg_event *e);
/* Tell on_taken(), if it is wanted. Lock not held. */
void copy_report_taken(void *copy, const char *name);
/* What the run returns when it is through: with an only file its own failure. */
int copy_verdict(struct copy *c, bool only);
/* What this end's lanes did with their time. */
int copy_send_times(struct copy *c, const struct msg_times *m);
/* The session failed: its failure as this thread's, and -1. */
int copy_fail_session(struct copy *c);
/* Start n threads, join them; failed ones (or over ones) are woken until they are gone. */
void copy_join(struct worker *w, unsigned n);
void tally_bytes(struct tally *t, uint64_t len);

#endif
