/* SPDX-License-Identifier: Apache-2.0 */

/* The one place that reads the clock of base/clock.h, so that tests/discrete can replace it. */

#include "base/clock.h"

uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
