/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/process/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/worker.h"
#include "cmd/output/screen.h"
#include "cmd/process/signals.h"

enum { WAKE_EVERY_MS = 20 };

static int bell = -1; /* an eventfd; handlers and threads raise it to wake main */
static atomic_int stop_signal; /* 0: none yet */
static atomic_bool progress_requested; /* by SIGUSR1 */
static atomic_bool session_is_over;
static atomic_bool nudged;
static atomic_bool worker_ended; /* it only has to return */

static void ring_bell(void)
{
	if (bell >= 0)
		raise_event(bell);
}

static void on_stop_signal(int signo)
{
	static const char text[] = "second signal: exiting at once\n";

	if (atomic_exchange(&stop_signal, signo)) {
		(void)!write(STDERR_FILENO, text, sizeof text - 1);
		_exit(OUT_SIGNAL);
	}
	cancel(signo);
	ring_bell();
}

static void on_progress_signal(int signo)
{
	(void)signo;
	atomic_store(&progress_requested, true);
	ring_bell();
}

static void set_handler(int signo, void (*handler)(int))
{
	/* Without SA_RESTART a signal ends a wait in main. */
	struct sigaction sa = {.sa_handler = handler};

	sigemptyset(&sa.sa_mask);
	sigaction(signo, &sa, NULL);
}

int watch_signals(bool ignore_terminal)
{
	if (bell < 0)
		bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bell < 0)
		return fail_as(OUT_MEMORY, "create an event descriptor: %m");
	set_handler(SIGPIPE, SIG_IGN);
	/* restore_signals() in child.c has set the default action in a forked end. */
	set_handler(SIGXFSZ, SIG_IGN);
	set_handler(SIGUSR1, on_progress_signal);
	set_handler(SIGTERM, on_stop_signal);
	if (!signal_is_ignored(SIGINT))
		set_handler(SIGINT, ignore_terminal ? SIG_IGN : on_stop_signal);
	if (!signal_is_ignored(SIGHUP))
		set_handler(SIGHUP, ignore_terminal ? SIG_IGN : on_stop_signal);
	return 0;
}

void watch_session(struct watch *w, struct session *s)
{
	pthread_mutex_lock(&w->lock);
	w->session = s;
	pthread_mutex_unlock(&w->lock);
	/* It may have failed before main knew of it. */
	ring_bell();
}

void watch_failed(void)
{
	atomic_store(&session_is_over, true);
	ring_bell();
}

void watch_nudge(void)
{
	if (!atomic_exchange(&nudged, true))
		ring_bell();
}

void watch_fail(struct watch *w)
{
	pthread_mutex_lock(&w->lock);
	if (w->session)
		session_fail(w->session);
	pthread_mutex_unlock(&w->lock);
}

/*
 * Whether the session failed. A session that is over has not always failed: after the sink's
 * verdict the connection may close while the worker still cleans up.
 */
static bool has_lost_session(struct watch *w)
{
	struct failure f;
	char host[HOST_MAX];
	bool lost;

	if (!atomic_load(&session_is_over))
		return false;
	pthread_mutex_lock(&w->lock);
	lost = w->session && session_failed(w->session, &f, host);
	/* Keep it: the worker may close the session before main exits. */
	if (lost)
		w->lost = f;
	pthread_mutex_unlock(&w->lock);
	return lost;
}

static void *run_work(void *arg)
{
	struct watch *w = arg;
	int result = w->work(w->ctx);
	struct failure f = *failed();

	pthread_mutex_lock(&w->lock);
	/* A cancelled wait reports only a signal; prefer the cause. */
	if (result && f.code == OUT_SIGNAL && w->lost.code != OUT_DONE)
		f = w->lost;
	if (result && f.code == OUT_SIGNAL && atomic_load(&stop_signal)) {
		fail_signal(atomic_load(&stop_signal));
		f = *failed();
	}
	/* Otherwise main has set both and is printing them. */
	if (!w->left) {
		w->result = result;
		w->failure = f;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Waits for the bell, at most ms. */
static void wait_for_bell(int ms)
{
	struct pollfd p[2] = {{.fd = bell, .events = POLLIN},
			      {.fd = screen_is_pending() ? STDERR_FILENO : -1, .events = POLLOUT}};
	uint64_t rings;

	if (poll(p, 2, ms) <= 0)
		return;
	if (p[0].revents)
		(void)!read(bell, &rings, sizeof rings);
	if (p[1].revents)
		screen_flush();
}

/* Sets the failure with which main exits without the worker: the session's failure, else the
 * signal. */
static void set_leave_failure(struct watch *w)
{
	char host[HOST_MAX];
	bool known = false;

	pthread_mutex_lock(&w->lock);
	w->left = true;
	w->result = -1;
	if (w->session)
		known = session_failed(w->session, &w->failure, host);
	pthread_mutex_unlock(&w->lock);
	if (known)
		return;
	if (w->lost.code != OUT_DONE) {
		w->failure = w->lost;
		return;
	}
	fail_signal(atomic_load(&stop_signal));
	w->failure = *failed();
}

static void *run_work_and_ring(void *arg)
{
	run_work(arg);
	atomic_store(&worker_ended, true);
	ring_bell();
	return NULL;
}

bool watch_run(struct watch *w)
{
	struct worker worker = {0};
	uint64_t leave_ms = 0;
	bool signal_handled = false;

	pthread_mutex_init(&w->lock, NULL);
	if (worker_start(&worker, "end", run_work_and_ring, w)) {
		w->result = -1;
		w->failure = *failed();
		return true;
	}
	while (!atomic_load(&worker_ended)) {
		int signo;

		wait_for_bell(leave_ms ? WAKE_EVERY_MS : w->tick_ms ? w->tick_ms : -1);
		signo = atomic_load(&stop_signal);
		if (signo && !signal_handled) {
			signal_handled = true;
			fail_signal(signo);
			watch_fail(w);
		}
		if (!leave_ms && (signo || has_lost_session(w))) {
			leave_ms = clock_ms() + LEAVE_MS;
			/* Waits in base/io.h end on EINTR only if cancelled(); any signal will do.
			 */
			cancel(signo ? signo : SIGUSR2);
		}
		if (leave_ms) {
			workers_wake();
			if (clock_ms() >= leave_ms) {
				set_leave_failure(w);
				return false;
			}
		}
		atomic_store(&nudged, false);
		if (w->tick)
			w->tick(w->ctx, atomic_exchange(&progress_requested, false));
	}
	worker_join(&worker);
	return true;
}
