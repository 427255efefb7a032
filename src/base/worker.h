/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

/*
 * Threads that can be woken out of a system call, and the process-wide cancel flag.
 *
 * cancel() sets the flag and sends SIGUSR2 (handled without SA_RESTART) to every worker. A signal
 * can arrive just before the call that it should interrupt, so the thread that waits for the
 * workers repeats workers_wake() until they are gone. The file calls of io.h give up on EINTR once
 * the flag is set.
 *
 * Workers start with all signals blocked except SIGUSR2 and those of faults (SIGSEGV …). There are
 * at most WORKERS_MAX at a time.
 */

#include <pthread.h>
#include <stdbool.h>

enum { WORKERS_MAX = 160 };

struct worker {
	pthread_t thread;
	void *(*run)(void *);
	void *arg;
	bool running; /* started and not yet joined */
	bool ended; /* run returned; private to worker.c */
};

/* Starts w with run(arg). Returns 0, or -1 with a failure. w must live until it is joined. */
int worker_start(struct worker *w, const char *name, void *(*run)(void *), void *arg);
/* Waits for w to end; does nothing if it isn't running. */
void worker_join(struct worker *w);
/* Like worker_join(), but only until the deadline (clock_ms); returns false if w still runs. */
bool worker_join_until(struct worker *w, unsigned long long deadline_ms);

/* Safe in a signal handler. cancelled() then returns signo, which must not be 0. */
void cancel(int signo);
/* The signal that cancelled this process; 0: not cancelled. */
int cancelled(void);
/* Sends SIGUSR2 to every worker once more. */
void workers_wake(void);

#endif
