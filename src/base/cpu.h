/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CPU_H
#define BASE_CPU_H

/* What threads got of the processors. */

#include <stdint.h>
#include <sys/types.h>

struct cpu_time {
	uint64_t ns_run; /* on a processor */
	uint64_t ns_queued; /* ready to run, and waiting for one */
};

/* Of a thread of this process that has not ended; both 0 where the system does not tell. */
void cpu_time_of(pid_t tid, struct cpu_time *out);

/* Processors that this process may run on; 0: not known. */
unsigned cpu_count(void);

/* The same, and no more than the time that its cgroups grant is worth; at least 1.  Whoever spins
 * takes a processor from others if there is but one. */
unsigned cpu_share(void);

/* Processors whose time the cgroup at this path below root (of version 2) and those above it
 * grant, rounded up; UINT_MAX: no limit. */
unsigned cpu_quota(const char *root, const char *path);

#endif
