/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"

/* Reads the beginning of a small file. Returns false if it is missing or empty. */
static bool read_text(const char *name, char *to, size_t size)
{
	int fd = RETRIED(open(name, O_RDONLY | O_CLOEXEC));
	ssize_t n;

	to[0] = '\0';
	if (fd < 0)
		return false;
	n = read_full(fd, to, size - 1);
	close_fd(fd);
	if (n > 0)
		to[n] = '\0';
	return n > 0;
}

void cpu_time_of(pid_t tid, struct cpu_time *out)
{
	char name[64], text[128];

	*out = (struct cpu_time){0};
	snprintf(name, sizeof name, "/proc/self/task/%d/schedstat", (int)tid);
	if (read_text(name, text, sizeof text) &&
	    sscanf(text, "%" SCNu64 " %" SCNu64, &out->ns_run, &out->ns_queued) != 2)
		*out = (struct cpu_time){0};
}

unsigned cpu_count(void)
{
	cpu_set_t mine;

	return sched_getaffinity(0, sizeof mine, &mine) == 0 ? (unsigned)CPU_COUNT(&mine) : 0;
}

/* Reads cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD". */
static unsigned read_quota(const char *file)
{
	unsigned long long quota, period, cpus;
	char text[64];

	if (!read_text(file, text, sizeof text) ||
	    sscanf(text, "%llu %llu", &quota, &period) != 2 || period == 0)
		return UINT_MAX;
	cpus = quota / period + (quota % period > 0);
	return cpus < 1 ? 1 : cpus < UINT_MAX ? (unsigned)cpus : UINT_MAX;
}

unsigned cpu_quota(const char *root, const char *path)
{
	unsigned least = UINT_MAX;
	char at[PATH_MAX], file[PATH_MAX + 16];
	size_t top = strlen(root);
	char *end;

	if (snprintf(at, sizeof at, "%s%s", root, path) >= (int)sizeof at)
		return UINT_MAX;
	for (;;) {
		unsigned cpus;

		snprintf(file, sizeof file, "%s/cpu.max", at);
		cpus = read_quota(file);
		if (cpus < least)
			least = cpus;
		end = strrchr(at, '/');
		if (!end || (size_t)(end - at) < top)
			return least;
		*end = '\0';
	}
}

/* This process's cgroup of version 2, from a line such as "0::/user.slice". */
static void read_own_cgroup(char *to, size_t size)
{
	char text[PATH_MAX + 64], *line, *rest = text;

	to[0] = '\0';
	if (!read_text("/proc/self/cgroup", text, sizeof text))
		return;
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, "0::", 3) == 0)
			snprintf(to, size, "%s", line + 3);
	}
}

unsigned cpu_share(void)
{
	unsigned count = cpu_count(), quota;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	char group[PATH_MAX];

	if (!count)
		count = online > 0 ? (unsigned)online : 1;
	read_own_cgroup(group, sizeof group);
	quota = cpu_quota("/sys/fs/cgroup", group);
	return quota < count ? quota : count;
}
