/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISCRETE_SCHEDULER_H
#define DISCRETE_SCHEDULER_H

/*
 * Virtual time. A task is a thread, and exactly one task runs at any moment. Code takes no time:
 * time advances only when every task waits, and then to the next event. Events at the same time
 * happen in the order in which they were scheduled. So a run is the same each time, and what the
 * tasks share needs no lock.
 *
 * If every task waits and no event is left, the program prints that and aborts.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PS_PER_NS UINT64_C(1000)
#define PS_PER_MS UINT64_C(1000000000)

struct task {
	pthread_t thread;
	pthread_cond_t resumed;
	void (*run)(void *arg);
	void *arg;
	uint64_t waits; /* counts its waits, so that an old deadline wakes no later one */
};

/* Where one task waits for something. All zeros: nobody waits. */
struct gate {
	struct task *waiting;
	bool opened;
};

uint64_t now_ps(void);

/* Calls call(arg) at this time. The call must not wait. */
void schedule_call(uint64_t at_ps, void (*call)(void *arg), void *arg);

/* Starts a task; it runs when the others wait. t must live until scheduler_run() returns. */
void task_start(struct task *t, void (*run)(void *arg), void *arg);
/* Runs until every task has ended and every scheduled call was made. Only the main thread may call
 * it, and only once. */
void scheduler_run(void);

/* For tasks. */
void task_sleep_until(uint64_t at_ps);
/* Waits until the gate is opened, or until a time if until_ps > 0. Returns whether it was opened.
 */
bool gate_wait(struct gate *g, uint64_t until_ps);
/* Wakes the task that waits there, if there is one. Anyone may call it. */
void gate_open(struct gate *g);

#endif
