/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_WATCH_H
#define CMD_PROCESS_WATCH_H

/*
 * The main thread of an end. It handles signals, progress and the clock while a worker does the
 * work, so that it can always exit in time.
 *
 * SIGINT, SIGTERM or SIGHUP cancel the session (OUT_SIGNAL, reported to the peer); a second one
 * ends the process at once. When the session has failed for any reason, the main thread wakes the
 * worker and its threads repeatedly. After LEAVE_MS it exits without them.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/fail.h"
#include "protocol/message.h"
#include "session/session.h"

enum { LEAVE_MS = 1000 };

struct watch {
	/* In the worker: returns 0, or -1 with a failure. */
	int (*work)(void *ctx);
	/* In the main thread every tick_ms (0: never), and after SIGUSR1 (asked). */
	void (*tick)(void *ctx, bool asked);
	void *ctx;
	int tick_ms;

	/* private */
	pthread_mutex_t lock;
	struct session *session;
	struct failure lost; /* the session's failure, once the main thread has seen it */
	bool left; /* the main thread exits without the worker, and owns result and failure */
	int result;
	struct failure failure;
};

/* Takes over the signals. Call it before starting any thread or child. ignore_terminal: leave
 * SIGINT and SIGHUP, which a terminal sends to all processes, to the conductor. */
int watch_signals(bool ignore_terminal);
/* Runs w->work. Returns true if it finished; w->result and w->failure are its results. False: it
 * had to be abandoned; w->failure says why, and the caller must only call _exit(2). */
bool watch_run(struct watch *w);

/* Sets the session to fail when a signal arrives; NULL before it is closed. Any thread. */
void watch_session(struct watch *w, struct session *s);
/* Makes the session fail with the current failure, unless it failed before. In the main thread. */
void watch_fail(struct watch *w);
/* Reports that the session failed, for session_opts.on_fail. Any thread, never waits. */
void watch_failed(void);
/* Makes the main thread call tick soon. Any thread, never waits. */
void watch_nudge(void);

#endif
