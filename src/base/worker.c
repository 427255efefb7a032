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

/* Not what RLIMIT_STACK says, which may be too little for our frames or more than there is. */
enum { STACK_BYTES = 8 << 20 };

/*
 * Who is there to be woken.  A signal handler walks this, so it is an array without a lock:
 * whoever wants to signal a worker counts itself in `wakers' first and looks at `state' then;
 * a worker that ends sets `state' first and waits for `wakers' to be 0 then.  So a thread
 * that is signalled always exists, although nobody waits for anybody for long.
 */
enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_LIVE };

struct worker_slot {
	atomic_int state;
	atomic_int wakers;
	_Atomic pthread_t thread;
};
static struct worker_slot seats[WORKERS_MAX];

static atomic_int cancelled_by;

/* Every worker's `ended': pthread_clockjoin_np would do without, but sanitizers don't know it. */
static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end_came;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

struct thread_start {
	struct worker *w;
	struct worker_slot *seat;
	char name[16];
};

static void ignore_signal(int signo)
{
	(void)signo;
}

/* Without SA_RESTART, so that the system call it comes in ends with EINTR. */
static void init_workers(void)
{
	struct sigaction sa = {.sa_handler = ignore_signal};
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&end_came, &attr);
	pthread_condattr_destroy(&attr);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGUSR2, &sa, NULL);
}

static struct worker_slot *take_slot(void)
{
	for (unsigned i = 0; i < WORKERS_MAX; i++) {
		int free_seat = SLOT_FREE;

		if (atomic_compare_exchange_strong(&seats[i].state, &free_seat, SLOT_TAKEN))
			return &seats[i];
	}
	return NULL;
}

static void release_slot(struct worker_slot *seat)
{
	atomic_store(&seat->state, SLOT_TAKEN);
	while (atomic_load(&seat->wakers) > 0)
		sched_yield();
	atomic_store(&seat->state, SLOT_FREE);
}

static void *run_worker(void *arg)
{
	struct thread_start s = *(struct thread_start *)arg;
	void *result;

	free(arg);
	pthread_setname_np(pthread_self(), s.name);
	atomic_store(&s.seat->thread, pthread_self());
	atomic_store(&s.seat->state, SLOT_LIVE);
	result = s.w->run(s.w->arg);
	release_slot(s.seat);
	pthread_mutex_lock(&end_lock);
	s.w->ended = true;
	pthread_cond_broadcast(&end_came);
	pthread_mutex_unlock(&end_lock);
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
	/* What the processor raises stays deliverable: blocked, it would kill without a trace. */
	static const int open_signals[] = {SIGUSR2, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	struct thread_start *s = malloc(sizeof *s);
	sigset_t block, old;

	w->running = false;
	w->ended = false;
	w->run = run;
	w->arg = arg;
	if (!s)
		return fail_as(OUT_MEMORY, "start thread %s: %m", name);
	pthread_once(&prepared, init_workers);
	s->w = w;
	s->seat = take_slot();
	snprintf(s->name, sizeof s->name, "%s", name);
	if (!s->seat) {
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
		atomic_store(&s->seat->state, SLOT_FREE);
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
	pthread_mutex_lock(&end_lock);
	while (!w->ended && pthread_cond_timedwait(&end_came, &end_lock, &until) == 0)
		;
	ended = w->ended;
	pthread_mutex_unlock(&end_lock);
	if (ended)
		worker_join(w);
	return ended;
}

void workers_wake(void)
{
	int err = errno;

	for (unsigned i = 0; i < WORKERS_MAX; i++) {
		struct worker_slot *seat = &seats[i];

		if (atomic_load(&seat->state) != SLOT_LIVE)
			continue;
		atomic_fetch_add(&seat->wakers, 1);
		if (atomic_load(&seat->state) == SLOT_LIVE)
			pthread_kill(atomic_load(&seat->thread), SIGUSR2);
		atomic_fetch_sub(&seat->wakers, 1);
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
