/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/guest_idle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/worker.h"

enum { LOOK_MS = 250, PAUSE_MS = 1000, LEAVE_LATE_MS = 3000, CPU_PART = 50 };

/* Whatever changes when something moves. */
struct movement {
	uint64_t arrived, bytes, total, files, removed, frames;
	long reads, writes;
};

struct guest_idle {
	const struct guest *guest;
	struct end_work *work;
	struct worker worker;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;

	/* the thread's */
	struct movement seen;
	uint64_t looked_ms;
	uint64_t since_ms; /* when anything moved last */
	uint64_t cpu_ms; /* of this process, then */
	uint64_t leave_ms; /* 0: it is not too late yet */
};

static uint64_t count_ms(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000 + (uint64_t)t->tv_usec / 1000;
}

static uint64_t sum_arrived(struct session *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < session_lanes(s); i++)
		sum += lane_activity(session_lane(s, i));
	return sum;
}

/* Whether anything has moved since the last look. */
static bool has_moved(struct guest_idle *i, uint64_t now_ms)
{
	struct end_work *w = i->work;
	struct movement seen = {.arrived = i->seen.arrived};
	struct rusage used = {0};
	uint64_t cpu_ms;

	getrusage(RUSAGE_SELF, &used);
	cpu_ms = count_ms(&used.ru_utime) + count_ms(&used.ru_stime);
	/* The main thread holds the lock while it waits for a client that takes nothing. */
	if (pthread_mutex_trylock(&w->watch.lock) == 0) {
		if (w->session && w->orders.m.role == ROLE_SINK)
			seen.arrived = sum_arrived(w->session);
		pthread_mutex_unlock(&w->watch.lock);
	}
	seen.bytes = w->tally.bytes;
	seen.total = w->tally.total;
	seen.files = w->tally.files;
	seen.removed = w->tally.removed;
	seen.frames = w->frames;
	seen.reads = used.ru_inblock;
	seen.writes = used.ru_oublock;
	if (memcmp(&seen, &i->seen, sizeof seen) == 0 &&
	    (cpu_ms - i->cpu_ms) * CPU_PART < i->guest->idle_s * 1000ull)
		return false;
	i->seen = seen;
	i->cpu_ms = cpu_ms;
	i->since_ms = now_ms;
	return true;
}

/* Fails the session, which ends all waits for the client. */
static bool fail_idle(struct guest_idle *i)
{
	struct end_work *w = i->work;

	fail_as(OUT_TIMEOUT, "nothing was copied for %u s (timeout of rdcpd)", i->guest->idle_s);
	if (pthread_mutex_trylock(&w->watch.lock))
		return false;
	if (w->session)
		session_fail(w->session);
	pthread_mutex_unlock(&w->watch.lock);
	return true;
}

/* The other threads do not end. */
static _Noreturn void leave_without(struct guest_idle *i)
{
	struct msg_verdict v = {.code = OUT_TIMEOUT};

	snprintf(v.text, sizeof v.text, "nothing was copied for %u s (timeout of rdcpd)",
		 i->guest->idle_s);
	guest_record_work(i->guest, &i->work->orders, &v);
	_exit(OUT_TIMEOUT);
}

static void look_at_guest(struct guest_idle *i)
{
	uint64_t now_ms = clock_ms();

	/* This process was stopped, which is not the client's fault. */
	if (now_ms - i->looked_ms > PAUSE_MS)
		i->since_ms += now_ms - i->looked_ms;
	i->looked_ms = now_ms;

	if (i->leave_ms) {
		if (now_ms >= i->leave_ms)
			leave_without(i);
		fail_idle(i);
	} else if (!has_moved(i, now_ms) && now_ms - i->since_ms >= i->guest->idle_s * 1000ull) {
		i->leave_ms = now_ms + LEAVE_LATE_MS;
		fail_idle(i);
	}
}

static void *watch_guest(void *arg)
{
	struct guest_idle *i = arg;

	pthread_mutex_lock(&i->lock);
	while (!i->stop) {
		struct timespec until = clock_after(LOOK_MS);

		pthread_cond_timedwait(&i->changed, &i->lock, &until);
		if (!i->stop)
			look_at_guest(i);
	}
	pthread_mutex_unlock(&i->lock);
	return NULL;
}

int guest_idle_start(const struct guest *g, struct end_work *w, struct guest_idle **out)
{
	pthread_condattr_t attr;
	struct guest_idle *i;

	*out = NULL;
	if (!g || !g->idle_s)
		return 0;
	i = calloc(1, sizeof *i);
	if (!i)
		return fail_as(OUT_MEMORY, "watch a session: %m");
	i->guest = g;
	i->work = w;
	i->since_ms = i->looked_ms = clock_ms();
	pthread_mutex_init(&i->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&i->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (worker_start(&i->worker, "idle", watch_guest, i)) {
		free(i);
		return -1;
	}
	*out = i;
	return 0;
}

void guest_idle_stop(struct guest_idle *i)
{
	if (!i)
		return;
	pthread_mutex_lock(&i->lock);
	i->stop = true;
	pthread_cond_signal(&i->changed);
	pthread_mutex_unlock(&i->lock);
	worker_join(&i->worker);
	pthread_cond_destroy(&i->changed);
	pthread_mutex_destroy(&i->lock);
	free(i);
}
