/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "base/io.h"

void cpu_time_of(pid_t tid, struct cpu_time *out)
{
	char name[64], text[128] = "";
	ssize_t n;
	int fd;

	*out = (struct cpu_time){0};
	snprintf(name, sizeof name, "/proc/self/task/%d/schedstat", (int)tid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof text - 1);
	close_fd(fd);
	if (n > 0 && sscanf(text, "%" SCNu64 " %" SCNu64, &out->ns_run, &out->ns_queued) != 2)
		*out = (struct cpu_time){0};
}

unsigned cpu_count(void)
{
	cpu_set_t mine;

	return sched_getaffinity(0, sizeof mine, &mine) == 0 ? (unsigned)CPU_COUNT(&mine) : 0;
}
