/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

/* Monotonic time (CLOCK_MONOTONIC: it stops while the machine sleeps). */

#include <stdint.h>
#include <time.h>

/* A poll(2) that returns this late shows that the process was stopped. */
enum { CLOCK_LATE_MS = 1000 };

uint64_t clock_ns(void);
uint64_t clock_ms(void);
/* The processor time of this thread. */
uint64_t clock_worked_ns(void);

/* Milliseconds from now to a deadline in clock_ms() time; at least 0, and valid for poll(2). */
int clock_left(uint64_t deadline_ms);

/* The absolute time ms from now, for pthread_cond_timedwait on a CLOCK_MONOTONIC condition. */
struct timespec clock_after(uint64_t ms);

/* A pause that grows: ms, doubled this many times, but not beyond `most'. */
static inline uint64_t clock_doubled(uint64_t ms, unsigned times, uint64_t most)
{
	while (ms > 0 && ms < most && times-- > 0)
		ms = ms < most - ms ? 2 * ms : most;
	return ms;
}

#endif
