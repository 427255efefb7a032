/* SPDX-License-Identifier: Apache-2.0 */

/* Locked memory: the limit, what lanes need, and who set it. */

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "cmd/survey.h"
#include "lane/pool.h"

enum {
	LANES = 2, /* as small links have them; fast ones take more where the limit lets them */
	DEPTH = 12,
	BLOCK = 256 << 10,
	RINGS = 64 << 10, /* of a lane, beside its pool */
};

static const char *bytes_text(uint64_t bytes, char *to, size_t size)
{
	if (bytes == UINT64_MAX)
		snprintf(to, size, "unlimited");
	else if (bytes < 1 << 20)
		snprintf(to, size, "%llu KiB", (unsigned long long)bytes >> 10);
	else
		snprintf(to, size, "%.1f MiB", (double)bytes / (1 << 20));
	return to;
}

static uint64_t limit_of(rlim_t limit)
{
	return limit == RLIM_INFINITY ? UINT64_MAX : limit;
}

/* ---- who set it ------------------------------------------------------------------------------ */

/* The line of a limits.conf that says memlock, if there is one: the last. */
static void look_for_line(const char *path, const char *shown, char *to, size_t size)
{
	char line[512], who[80], kind[16], item[32], value[32];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, " %79s %15s %31s %31s", who, kind, item, value) == 4 &&
		    who[0] != '#' && strcmp(item, "memlock") == 0)
			snprintf(to, size, "\"%s %s memlock %s\" in %s", who, kind, value, shown);
	}
	if (f)
		fclose(f);
}

static bool ends_with(const char *s, const char *with)
{
	size_t len = strlen(s), n = strlen(with);

	return len >= n && strcmp(s + len - n, with) == 0;
}

/* The last file that pam_limits reads has the last word. */
static void line_of_limits(const struct survey *s, char *to, size_t size)
{
	char path[PATH_MAX];
	struct dirent **names;
	int count;

	to[0] = '\0';
	snprintf(path, sizeof path, "%s/etc/security/limits.conf", s->top);
	look_for_line(path, "/etc/security/limits.conf", to, size);
	snprintf(path, sizeof path, "%s/etc/security/limits.d", s->top);
	count = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		const char *name = names[i]->d_name;
		char shown[NAME_MAX + 32];

		snprintf(path, sizeof path, "%s/etc/security/limits.d/%s", s->top, name);
		snprintf(shown, sizeof shown, "/etc/security/limits.d/%s", name);
		if (ends_with(name, ".conf"))
			look_for_line(path, shown, to, size);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

/* The service that this process belongs to, "" for a login's. */
static void service_of(const struct survey *s, char *to, size_t size)
{
	char path[PATH_MAX], line[PATH_MAX];
	FILE *f;

	to[0] = '\0';
	snprintf(path, sizeof path, "%s/proc/self/cgroup", s->top);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		const char *last;

		line[strcspn(line, "\n")] = '\0';
		last = strrchr(line, '/');
		/* user@1000.service is a login's, too: its limits are PAM's. */
		if (last && ends_with(last, ".service") && strncmp(last, "/user@", 6) != 0)
			snprintf(to, size, "%s", last + 1);
	}
	if (f)
		fclose(f);
}

static bool in_container(const struct survey *s)
{
	static const char *const signs[] = {"/.dockerenv", "/run/.containerenv"};
	char path[PATH_MAX];
	bool is = false;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s%s", s->top, signs[i]);
		is = is || access(path, F_OK) == 0;
	}
	return is;
}

static void say_origin(const struct survey *s, char *to, size_t size)
{
	char line[NAME_MAX + 256], service[NAME_MAX];

	line_of_limits(s, line, sizeof line);
	service_of(s, service, sizeof service);
	if (in_container(s))
		snprintf(to, size, "set by what started this container");
	else if (service[0])
		snprintf(to, size, "set by LimitMEMLOCK= of %s, or systemd's default", service);
	else if (line[0])
		snprintf(to, size, "of a login, set by %s", line);
	else
		snprintf(to, size,
			 "of a login, and no line in /etc/security says memlock: the kernel's "
			 "or systemd's default (DefaultLimitMEMLOCK=)");
}

static void say_remedy(const struct survey *s, char *to, size_t size)
{
	char service[NAME_MAX];

	service_of(s, service, sizeof service);
	if (in_container(s))
		snprintf(to, size, "start the container with --ulimit memlock=-1");
	else if (service[0])
		snprintf(to, size,
			 "systemctl edit %s: [Service] LimitMEMLOCK=infinity, then restart it",
			 service);
	else
		snprintf(to, size,
			 "put the four lines \"# Locked memory, for RDMA\", \"* soft memlock "
			 "unlimited\", \"* hard memlock unlimited\", \"# End\" into "
			 "/etc/security/limits.d/rdma.conf and log in again (a service: "
			 "LimitMEMLOCK=infinity)");
}

/* ---- how much -------------------------------------------------------------------------------- */

void survey_memory(const struct survey *s)
{
	struct rlimit rl = {0};
	unsigned lanes = LANES;
	uint32_t depth = DEPTH, block = BLOCK;
	uint64_t need = LANES * (pool_bytes(DEPTH, BLOCK) + RINGS), hard;
	char is[32], most[32], needed[32], origin[TEXT_MAX / 2], remedy[TEXT_MAX];
	bool fits;

	getrlimit(RLIMIT_MEMLOCK, &rl);
	hard = limit_of(rl.rlim_max);
	bytes_text(limit_of(rl.rlim_cur), is, sizeof is);
	bytes_text(hard, most, sizeof most);
	bytes_text(need, needed, sizeof needed);
	say_origin(s, origin, sizeof origin);
	say_remedy(s, remedy, sizeof remedy);
	fits = lanes_fit(hard, &lanes, &depth, &block);
	/* Programs raise their soft limit to the hard one. */
	if (fits && lanes == LANES)
		survey_found(s, FINDING_OK, "memlock", "", NULL,
			     "locked memory: limit %s (hard %s), the default lanes need %s; %s", is,
			     most, needed, origin);
	else if (fits)
		survey_found(
			s, FINDING_WARNING, "memlock", "", remedy,
			"locked memory: limit %s (hard %s), the default lanes need %s, so there "
			"is room for %u lane%s of %u blocks of %u KiB only, which is slower; %s",
			is, most, needed, lanes, lanes == 1 ? "" : "s", depth, block >> 10, origin);
	else
		survey_found(s, s->port_count ? FINDING_FAILURE : FINDING_WARNING, "memlock", "",
			     remedy,
			     "locked memory: limit %s (hard %s) is too small for even one lane, so "
			     "transfers fall back to TCP; the default lanes need %s; %s",
			     is, most, needed, origin);
}
