/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <limits.h>

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
	uint64_t now = clock_ns();
	struct timespec t = {
		.tv_sec = (time_t)(now / 1000000000 + ms / 1000),
		.tv_nsec = (long)(now % 1000000000 + ms % 1000 * 1000000),
	};

	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}
