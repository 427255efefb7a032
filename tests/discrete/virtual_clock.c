/* SPDX-License-Identifier: Apache-2.0 */

/* In place of src/base/clock.c. The clock does not start at 0, which means "never" to a lane. */

#include <limits.h>
#include "base/clock.h"
#include "scheduler.h"

enum { BOOT_MS = 1000 };

uint64_t clock_ns(void)
{
	return now_ps() / PS_PER_NS + BOOT_MS * UINT64_C(1000000);
}

uint64_t clock_ms(void)
{
	return clock_ns() / 1000000u;
}

int clock_left(uint64_t deadline_ms)
{
	uint64_t now = clock_ms();

	if (now >= deadline_ms)
		return 0;
	return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

struct timespec clock_after(uint64_t ms)
{
	uint64_t at = clock_ms() + ms;

	return (struct timespec){.tv_sec = (time_t)(at / 1000),
				 .tv_nsec = (long)(at % 1000) * 1000000};
}
