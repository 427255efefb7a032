/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct event {
	uint64_t at_ps, order;
	void (*call)(void *arg); /* NULL: resume task */
	void *arg;
	struct task *task;
	uint64_t waits; /* of the task, when this was scheduled */
};

/* The running thread holds the lock, so it also protects everything that tasks share. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct task *running;
static unsigned alive;
static uint64_t now, next_order;

/* A heap: each event comes before the two at 2 i + 1 and 2 i + 2. */
static struct event *events;
static size_t count, room;

uint64_t now_ps(void)
{
	return now;
}

/* ---- events --------------------------------------------------------------------------- */

static bool comes_before(const struct event *a, const struct event *b)
{
	return a->at_ps != b->at_ps ? a->at_ps < b->at_ps : a->order < b->order;
}

static void swap_events(struct event *a, struct event *b)
{
	struct event t = *a;

	*a = *b;
	*b = t;
}

static void push_event(struct event e)
{
	size_t i = count;

	if (count == room) {
		room = room ? 2 * room : 1024;
		events = realloc(events, room * sizeof *events);
		if (!events)
			abort();
	}
	e.order = next_order++;
	if (e.at_ps < now)
		e.at_ps = now;
	events[count++] = e;
	for (; i > 0 && comes_before(&events[i], &events[(i - 1) / 2]); i = (i - 1) / 2)
		swap_events(&events[i], &events[(i - 1) / 2]);
}

static struct event pop_event(void)
{
	struct event first = events[0];
	size_t i = 0;

	events[0] = events[--count];
	for (;;) {
		size_t least = i, child = 2 * i + 1;

		for (size_t c = child; c < child + 2 && c < count; c++)
			if (comes_before(&events[c], &events[least]))
				least = c;
		if (least == i)
			return first;
		swap_events(&events[i], &events[least]);
		i = least;
	}
}

void schedule_call(uint64_t at_ps, void (*call)(void *arg), void *arg)
{
	push_event((struct event){.at_ps = at_ps, .call = call, .arg = arg});
}

static void schedule_task(struct task *t, uint64_t at_ps)
{
	push_event((struct event){.at_ps = at_ps, .task = t, .waits = t->waits});
}

/* Advances the time to the next event that resumes a task, and returns that task. */
static struct task *advance_time(void)
{
	while (count > 0) {
		struct event e = pop_event();

		if (!e.call && e.waits != e.task->waits)
			continue; /* it has resumed before */
		now = e.at_ps;
		if (!e.call)
			return e.task;
		e.call(e.arg);
	}
	fprintf(stderr, "discrete: %u tasks wait for ever, from %.9f s on\n", alive,
		(double)now / 1e12);
	abort();
}

/* ---- tasks ------------------------------------------------------------------------------ */

static void await_turn(struct task *t)
{
	while (running != t)
		pthread_cond_wait(&t->resumed, &lock);
	t->waits++;
}

/* Lets the next task run until it is the turn of t again. */
static void yield_turn(struct task *t)
{
	running = advance_time();
	if (running != t)
		pthread_cond_signal(&running->resumed);
	await_turn(t);
}

static void *run_task(void *arg)
{
	struct task *t = arg;

	pthread_mutex_lock(&lock);
	await_turn(t);
	t->run(t->arg);
	if (--alive > 0) {
		running = advance_time();
		pthread_cond_signal(&running->resumed);
	} else {
		pthread_cond_signal(&ended);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Threads that take turns change places faster on one processor than on several. */
static void stay_here(void)
{
	int here = sched_getcpu();
	cpu_set_t set;

	if (here < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)here, &set);
	sched_setaffinity(0, sizeof set, &set);
}

void task_start(struct task *t, void (*run)(void *arg), void *arg)
{
	if (alive == 0)
		stay_here();
	*t = (struct task){.run = run, .arg = arg};
	pthread_cond_init(&t->resumed, NULL);
	alive++;
	schedule_task(t, now);
	if (pthread_create(&t->thread, NULL, run_task, t)) {
		perror("discrete: pthread_create");
		exit(1);
	}
	pthread_detach(t->thread);
}

void scheduler_run(void)
{
	pthread_mutex_lock(&lock);
	if (alive > 0) {
		running = advance_time();
		pthread_cond_signal(&running->resumed);
	}
	while (alive > 0)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	while (count > 0) {
		struct event e = pop_event();

		now = e.at_ps;
		if (e.call)
			e.call(e.arg);
	}
	free(events);
	events = NULL;
	count = room = 0;
}

void task_sleep_until(uint64_t at_ps)
{
	struct task *t = running;

	if (at_ps <= now)
		return;
	schedule_task(t, at_ps);
	yield_turn(t);
}

bool gate_wait(struct gate *g, uint64_t until_ps)
{
	struct task *t = running;

	g->waiting = t;
	g->opened = false;
	if (until_ps)
		schedule_task(t, until_ps);
	yield_turn(t);
	g->waiting = NULL;
	return g->opened;
}

void gate_open(struct gate *g)
{
	if (!g->waiting || g->opened)
		return;
	g->opened = true;
	schedule_task(g->waiting, now);
}
