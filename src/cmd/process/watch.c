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

static int bell = -1; /* rung by handlers and threads, heard by main */
static atomic_int caught; /* the signal that asked us to stop */
static atomic_bool asked; /* SIGUSR1 */
static atomic_bool session_is_over;
static atomic_bool nudged;
static atomic_bool ended; /* the worker has nothing left to do but return */

static void ring_bell(void)
{
	if (bell >= 0)
		raise_event(bell);
}

static void on_stop_signal(int signo)
{
	static const char text[] = "a second signal: leaving at once\n";

	if (atomic_exchange(&caught, signo)) {
		(void)!write(STDERR_FILENO, text, sizeof text - 1);
		_exit(OUT_SIGNAL);
	}
	cancel(signo);
	ring_bell();
}

static void on_progress_signal(int signo)
{
	(void)signo;
	atomic_store(&asked, true);
	ring_bell();
}

static void set_handler(int signo, void (*handler)(int))
{
	/* Without SA_RESTART: a wait in main ends. */
	struct sigaction sa = {.sa_handler = handler};

	sigemptyset(&sa.sa_mask);
	sigaction(signo, &sa, NULL);
}

int watch_signals(bool deaf)
{
	if (bell < 0)
		bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bell < 0)
		return fail_as(OUT_MEMORY, "make an event descriptor: %m");
	set_handler(SIGPIPE, SIG_IGN);
	/* An end that was forked has what launch.c gives to a command. */
	set_handler(SIGXFSZ, SIG_IGN);
	set_handler(SIGUSR1, on_progress_signal);
	set_handler(SIGTERM, on_stop_signal);
	if (!signal_is_ignored(SIGINT))
		set_handler(SIGINT, deaf ? SIG_IGN : on_stop_signal);
	if (!signal_is_ignored(SIGHUP))
		set_handler(SIGHUP, deaf ? SIG_IGN : on_stop_signal);
	return 0;
}

void watch_session(struct watch *w, struct session *s)
{
	pthread_mutex_lock(&w->lock);
	w->session = s;
	pthread_mutex_unlock(&w->lock);
	/* It may have failed before main could know of it. */
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

/* Have the session fail with the signal, unless it has failed before. */
static void fail_watched_session(struct watch *w, int signo)
{
	pthread_mutex_lock(&w->lock);
	fail_signal(signo);
	if (w->session)
		session_fail(w->session);
	pthread_mutex_unlock(&w->lock);
}

/*
 * Did the session fail?  That it is over is not enough: after the sink's verdict the line may
 * go, and the worker still has to close what it opened.
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
	/* The worker may close the session before main leaves. */
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
	/* Whoever noticed the signal first knew only its number. */
	if (result && f.code == OUT_SIGNAL && w->lost.code != OUT_DONE)
		f = w->lost;
	if (result && f.code == OUT_SIGNAL && atomic_load(&caught)) {
		fail_signal(atomic_load(&caught));
		f = *failed();
	}
	/* Else main prints its own reason right now. */
	if (!w->left) {
		w->result = result;
		w->failure = f;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Wait for the bell or the worker's end, at most ms. */
static void wait_for_bell(int ms)
{
	struct pollfd p[2] = {{.fd = bell, .events = POLLIN},
			      {.fd = screen_waits() ? STDERR_FILENO : -1, .events = POLLOUT}};
	uint64_t rings;

	if (poll(p, 2, ms) <= 0)
		return;
	if (p[0].revents)
		(void)!read(bell, &rings, sizeof rings);
	if (p[1].revents)
		screen_flush();
}

/* Why main leaves alone: what the session says or has said, else the signal. */
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
	fail_signal(atomic_load(&caught));
	w->failure = *failed();
}

static void *run_work_and_ring(void *arg)
{
	run_work(arg);
	atomic_store(&ended, true);
	ring_bell();
	return NULL;
}

bool watch_run(struct watch *w)
{
	struct worker worker = {0};
	uint64_t leave_ms = 0;
	bool told = false;

	pthread_mutex_init(&w->lock, NULL);
	if (worker_start(&worker, "end", run_work_and_ring, w)) {
		w->result = -1;
		w->failure = *failed();
		return true;
	}
	while (!atomic_load(&ended)) {
		int signo;

		wait_for_bell(leave_ms ? WAKE_EVERY_MS : w->tick_ms ? w->tick_ms : -1);
		signo = atomic_load(&caught);
		if (signo && !told) {
			told = true;
			fail_watched_session(w, signo);
		}
		if (!leave_ms && (signo || has_lost_session(w))) {
			leave_ms = clock_ms() + LEAVE_MS;
			/* io.h gives up on EINTR only when cancelled, by whatever. */
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
			w->tick(w->ctx, atomic_exchange(&asked, false));
	}
	worker_join(&worker);
	return true;
}
