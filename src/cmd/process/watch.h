/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_WATCH_H
#define CMD_PROCESS_WATCH_H

/*
 * The main thread of an end: it minds signals, progress and the clock while a worker does
 * the work, so that it can always leave in time.
 *
 * SIGINT, SIGTERM or SIGHUP cancel the session (OUT_SIGNAL, the peer is told); a second one
 * ends the process at once.  When the session has failed for whatever reason the worker
 * and its threads are woken again and again; after LEAVE_MS main goes without them.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/fail.h"
#include "protocol/message.h"
#include "session/session.h"

enum { LEAVE_MS = 1000 };

struct watch {
	/* In the worker: 0, or -1 with a failure. */
	int (*work)(void *ctx);
	/* In the main thread every tick_ms (0: never), and when SIGUSR1 came (asked). */
	void (*tick)(void *ctx, bool asked);
	void *ctx;
	int tick_ms;

	/* its own */
	pthread_mutex_t lock;
	struct session *session;
	struct failure lost; /* the session's, once main has seen that it failed */
	bool left; /* main goes without the worker, and result and failure are main's */
	int result;
	struct failure failure;
};

/* Signals are ours from now on; before any thread or child.  deaf: leave SIGINT and SIGHUP,
 * which a terminal sends to everybody, to the conductor. */
int watch_signals(bool deaf);
/* Run w->work; true when it came to its end: w->result and w->failure are its.  False: it had to
 * be left behind; w->failure says why, and only _exit(2) may follow. */
bool watch_run(struct watch *w);

/* The session to fail when a signal comes; NULL before it is closed. Any thread. */
void watch_session(struct watch *w, struct session *s);
/* The session failed: for session_opts.on_fail. Any thread, never waits. */
void watch_failed(void);
/* Have tick called soon. Any thread, never waits. */
void watch_nudge(void);

#endif
