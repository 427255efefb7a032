/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CPU_H
#define BASE_CPU_H

/* Processor time of threads, and the number of processors. */

#include <stdint.h>
#include <sys/types.h>

struct cpu_time {
	uint64_t ns_run; /* on a processor */
	uint64_t ns_queued; /* ready to run, waiting for a processor */
};

/* Of a thread of this process that has not ended; both 0 if the system does not report it. */
void cpu_time_of(pid_t tid, struct cpu_time *out);

/* Processors that this process may run on; 0: unknown. */
unsigned cpu_count(void);

/* The same, but no more than its cgroups' CPU quota allows; at least 1. With only one processor a
 * thread that spins takes it from others. */
unsigned cpu_share(void);

/* Processors granted by the CPU quotas of the cgroup (version 2) at this path below root and of
 * those above it, rounded up; UINT_MAX: no limit. */
unsigned cpu_quota(const char *root, const char *path);

#endif
