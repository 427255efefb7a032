/* SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/fail.h"

/* Fixed, because RLIMIT_STACK may be too small for our frames, or larger than the memory. */
enum { STACK_BYTES = 8 << 20 };

/*
 * The workers that may be woken. A signal handler walks this array, so it has no lock. A thread
 * that signals a worker first increments `wakers', then checks `state'. A worker that ends first
 * changes `state', then waits until `wakers' is 0. So a signalled thread always exists, and neither
 * side waits for long.
 */
enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_LIVE };

struct worker_slot {
	atomic_int state;
	atomic_int wakers;
	_Atomic pthread_t thread;
};
static struct worker_slot slots[WORKERS_MAX];

static atomic_int cancelled_by;

/* Protects every worker's `ended'; worker_ended is signalled when one is set.
 * pthread_clockjoin_np(3) would not need it, but the sanitizers do not support that call. */
static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t worker_ended;
static pthread_once_t workers_once = PTHREAD_ONCE_INIT;

struct thread_start {
	struct worker *w;
	struct worker_slot *slot;
	char name[16];
};

static void ignore_signal(int signo)
{
	(void)signo;
}

/* Installs the handler without SA_RESTART, so that the signal ends a system call with EINTR. */
static void init_workers(void)
{
	struct sigaction sa = {.sa_handler = ignore_signal};
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&worker_ended, &attr);
	pthread_condattr_destroy(&attr);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGUSR2, &sa, NULL);
}

static struct worker_slot *take_slot(void)
{
	for (unsigned i = 0; i < WORKERS_MAX; i++) {
		int expected = SLOT_FREE;

		if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_TAKEN))
			return &slots[i];
	}
	return NULL;
}

static void release_slot(struct worker_slot *slot)
{
	atomic_store(&slot->state, SLOT_TAKEN);
	while (atomic_load(&slot->wakers) > 0)
		sched_yield();
	atomic_store(&slot->state, SLOT_FREE);
}

static void *run_worker(void *arg)
{
	struct thread_start s = *(struct thread_start *)arg;
	void *result;

	free(arg);
	pthread_setname_np(pthread_self(), s.name);
	atomic_store(&s.slot->thread, pthread_self());
	atomic_store(&s.slot->state, SLOT_LIVE);
	result = s.w->run(s.w->arg);
	release_slot(s.slot);
	pthread_mutex_lock(&ended_lock);
	s.w->ended = true;
	pthread_cond_broadcast(&worker_ended);
	pthread_mutex_unlock(&ended_lock);
	return result;
}

static int start_thread(pthread_t *thread, struct thread_start *s)
{
	pthread_attr_t attr;
	int err = pthread_attr_init(&attr);

	if (err)
		return err;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	err = pthread_create(thread, &attr, run_worker, s);
	pthread_attr_destroy(&attr);
	return err;
}

int worker_start(struct worker *w, const char *name, void *(*run)(void *), void *arg)
{
	/* SIGUSR2 wakes the thread.  Signals that the processor raises stay unblocked, because they
	 * would kill the process without a trace if they were blocked. */
	static const int open_signals[] = {SIGUSR2, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	struct thread_start *s = malloc(sizeof *s);
	sigset_t block, old;

	w->running = false;
	w->ended = false;
	w->run = run;
	w->arg = arg;
	if (!s)
		return fail_as(OUT_MEMORY, "start thread %s: %m", name);
	pthread_once(&workers_once, init_workers);
	s->w = w;
	s->slot = take_slot();
	snprintf(s->name, sizeof s->name, "%s", name);
	if (!s->slot) {
		free(s);
		return fail_as(OUT_MEMORY, "start thread %s: more than %d threads", name,
			       WORKERS_MAX);
	}
	sigfillset(&block);
	for (unsigned i = 0; i < sizeof open_signals / sizeof *open_signals; i++)
		sigdelset(&block, open_signals[i]);
	pthread_sigmask(SIG_SETMASK, &block, &old);
	errno = start_thread(&w->thread, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (errno) {
		atomic_store(&s->slot->state, SLOT_FREE);
		free(s);
		return fail_as(OUT_MEMORY, "start thread %s: %m", name);
	}
	w->running = true;
	return 0;
}

void worker_join(struct worker *w)
{
	if (!w->running)
		return;
	pthread_join(w->thread, NULL);
	w->running = false;
}

bool worker_join_until(struct worker *w, unsigned long long deadline_ms)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ms / 1000),
		.tv_nsec = (long)(deadline_ms % 1000) * 1000000,
	};

	bool ended;

	if (!w->running)
		return true;
	pthread_mutex_lock(&ended_lock);
	while (!w->ended && pthread_cond_timedwait(&worker_ended, &ended_lock, &until) == 0)
		;
	ended = w->ended;
	pthread_mutex_unlock(&ended_lock);
	if (ended)
		worker_join(w);
	return ended;
}

void workers_wake(void)
{
	int err = errno;

	for (unsigned i = 0; i < WORKERS_MAX; i++) {
		struct worker_slot *slot = &slots[i];

		if (atomic_load(&slot->state) != SLOT_LIVE)
			continue;
		atomic_fetch_add(&slot->wakers, 1);
		if (atomic_load(&slot->state) == SLOT_LIVE)
			pthread_kill(atomic_load(&slot->thread), SIGUSR2);
		atomic_fetch_sub(&slot->wakers, 1);
	}
	errno = err;
}

void cancel(int signo)
{
	int none = 0;

	atomic_compare_exchange_strong(&cancelled_by, &none, signo);
	workers_wake();
}

int cancelled(void)
{
	return atomic_load(&cancelled_by);
}
