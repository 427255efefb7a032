/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_ENGINE_H
#define SIMVERBS_ENGINE_H

/*
 * One thread per process that takes the place of the kernel and the adapter: it waits for sockets
 * and timers. Its callbacks run in that thread under the engine's lock, which also protects all
 * state of the connection manager and of links. A caller of the other functions holds the lock.
 */

#include <stdbool.h>
#include <stdint.h>

void engine_lock(void);
void engine_unlock(void);
/* Starts the thread if it does not run. Returns 0, or -1 with errno. */
int engine_start(void);

/* Has fn called soon, in the thread. Callers of engine_poke() need no lock. */
void engine_on_poke(void (*fn)(void));
void engine_poke(void);

/* A descriptor that is readable, or that the other end closed. */
struct engine_watch {
	int fd;
	void (*ready)(struct engine_watch *w);
	uint64_t id;
	struct engine_watch *next;
};
int engine_watch(struct engine_watch *w);
void engine_unwatch(struct engine_watch *w);

struct engine_timer {
	void (*fire)(struct engine_timer *t);
	uint64_t at_ns;
	bool set;
	struct engine_timer *next;
};
/* Replaces the time of a timer that is set. */
void engine_set(struct engine_timer *t, uint64_t ns);
void engine_cancel(struct engine_timer *t);

#endif
