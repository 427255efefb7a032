/* SPDX-License-Identifier: Apache-2.0 */

/* Locked memory: the limit, what lanes need, and where the limit was set. */

#include <dirent.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/suffix.h"
#include "cmd/check/survey.h"
#include "lane/memlock.h"
#include "session/connect/nics.h"

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

static uint64_t rlimit_bytes(rlim_t limit)
{
	return limit == RLIM_INFINITY ? UINT64_MAX : limit;
}

/* ---- where the limit was set ----------------------------------------------------------------- */

/* A line of limits.conf(5) that sets memlock for this user. */
struct limits_line {
	char text[NAME_MAX + 200]; /* "": there is none */
	bool soft; /* it sets only the soft limit */
	uint64_t bytes;
};

static bool is_member(gid_t group)
{
	int count = getgroups(0, NULL);
	gid_t *groups = count > 0 ? calloc((size_t)count, sizeof *groups) : NULL;
	bool is = group == getgid();

	if (groups)
		count = getgroups(count, groups);
	for (int i = 0; groups && i < count; i++)
		is |= groups[i] == group;
	free(groups);
	return is;
}

static bool applies_to_user(const char *who)
{
	struct passwd *user;
	struct group *group;

	if (strcmp(who, "*") == 0)
		return true;
	if (who[0] != '@') {
		user = getpwnam(who);
		return user && user->pw_uid == getuid();
	}
	group = getgrnam(who + 1);
	return group && is_member(group->gr_gid);
}

static uint64_t parse_limit_value(const char *text)
{
	if (strcmp(text, "unlimited") == 0 || strcmp(text, "infinity") == 0 || text[0] == '-')
		return UINT64_MAX;
	return strtoull(text, NULL, 10) << 10;
}

/* Keeps the last such line of a file. */
static void read_limits_file(const char *path, const char *shown, struct limits_line *l)
{
	char line[512], who[80], kind[16], item[32], value[32];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, " %79s %15s %31s %31s", who, kind, item, value) != 4 ||
		    who[0] == '#' || strcmp(item, "memlock") != 0 || !applies_to_user(who))
			continue;
		snprintf(l->text, sizeof l->text, "\"%s %s memlock %s\" in %s", who, kind, value,
			 shown);
		l->soft = strcmp(kind, "soft") == 0;
		l->bytes = parse_limit_value(value);
	}
	if (f)
		fclose(f);
}

/* In the order of pam_limits(8): a later file overrides an earlier one. */
static void read_limits_files(const struct survey *s, struct limits_line *l)
{
	char path[PATH_MAX];
	struct dirent **names;
	int count;

	*l = (struct limits_line){0};
	snprintf(path, sizeof path, "%s/etc/security/limits.conf", s->top);
	read_limits_file(path, "/etc/security/limits.conf", l);
	snprintf(path, sizeof path, "%s/etc/security/limits.d", s->top);
	count = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		const char *name = names[i]->d_name;
		char shown[NAME_MAX + 32];

		snprintf(path, sizeof path, "%s/etc/security/limits.d/%s", s->top, name);
		snprintf(shown, sizeof shown, "/etc/security/limits.d/%s", name);
		if (ends_with(name, ".conf"))
			read_limits_file(path, shown, l);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

/* The service that this process belongs to; "": a login. */
static void find_service(const struct survey *s, char *to, size_t size)
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
		/* user@1000.service and everything below it belong to a login, whose limits PAM
		 * sets. */
		if (last && ends_with(last, ".service") && !strstr(line, "/user@"))
			snprintf(to, size, "%s", last + 1);
	}
	if (f)
		fclose(f);
}

static bool is_in_container(const struct survey *s)
{
	static const char *const marks[] = {"/.dockerenv", "/run/.containerenv"};
	char path[PATH_MAX];
	bool is = false;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s%s", s->top, marks[i]);
		is = is || access(path, F_OK) == 0;
	}
	return is;
}

/* Whether this process has the limit that the line sets. */
static bool is_limit_in_force(const struct limits_line *l, const struct rlimit *rl)
{
	return l->bytes == rlimit_bytes(l->soft ? rl->rlim_cur : rl->rlim_max);
}

/* Where the limit of this process comes from. */
struct limit_origin {
	bool container;
	char service[NAME_MAX]; /* "": a login */
	struct limits_line line;
};

static void find_origin(const struct survey *s, struct limit_origin *o)
{
	o->container = is_in_container(s);
	find_service(s, o->service, sizeof o->service);
	read_limits_files(s, &o->line);
}

static void describe_origin(const struct limit_origin *o, const struct rlimit *rl, char *to,
			    size_t size)
{
	if (o->container)
		snprintf(to, size, "set by the runtime of this container");
	else if (o->service[0])
		snprintf(to, size, "set by LimitMEMLOCK= of %s, or systemd's default", o->service);
	else if (o->line.text[0])
		snprintf(to, size, "of a login, %s %s",
			 is_limit_in_force(&o->line, rl) ? "set by" : "but not by", o->line.text);
	else
		snprintf(to, size,
			 "of a login, and no line in /etc/security sets memlock for this user: "
			 "the default of the kernel or systemd (DefaultLimitMEMLOCK=)");
}

static void describe_remedy(const struct limit_origin *o, const struct rlimit *rl, char *to,
			    size_t size)
{
	if (o->container)
		snprintf(to, size, "start the container with --ulimit memlock=-1");
	else if (o->service[0])
		snprintf(to, size,
			 "systemctl edit %s: [Service] LimitMEMLOCK=infinity, then restart it",
			 o->service);
	else if (o->line.bytes == UINT64_MAX && !is_limit_in_force(&o->line, rl))
		snprintf(to, size,
			 "%s applies to new logins: log in again, through PAM (sshd: UsePAM "
			 "yes); \"*\" does not include root, which needs a line \"root\"",
			 o->line.text);
	else
		snprintf(to, size,
			 "put the four lines \"# Locked memory, for RDMA\", \"* soft memlock "
			 "unlimited\", \"* hard memlock unlimited\", \"# End\" into "
			 "/etc/security/limits.d/rdma.conf and log in again (for a service: "
			 "LimitMEMLOCK=infinity)");
}

/* ---- what lanes need ------------------------------------------------------------------------- */

/* Lanes are spread over all ports of the highest rate. */
static void find_port_links(const struct survey *s, struct sizing_for *f)
{
	struct offer_rules rules = {.only = ""};
	unsigned best = 0, links = 0;

	nics_find_links(&rules, true, 0, f);
	for (unsigned i = 0; i < s->port_count; i++) {
		const struct adapter *a = &s->ports[i];

		if (a->state != PORT_ACTIVE || !survey_is_here(a) || a->rate_mbits < best)
			continue;
		links = a->rate_mbits > best ? 1 : links + 1;
		best = a->rate_mbits;
	}
	f->links = links ? links : 1;
	f->rate = (uint64_t)best * f->links;
}

static uint64_t count_needed_bytes(const struct sizing *z)
{
	return z->lanes * lane_bytes(z->depth, z->block_size);
}

static const char *shape_text(const struct sizing *z, char *to, size_t size)
{
	snprintf(to, size, "%u lane%s of %u blocks of %u KiB", z->lanes, z->lanes == 1 ? "" : "s",
		 z->depth, z->block_size >> 10);
	return to;
}

/* "; other users with this limit get 1 lane of 4 blocks of 16 KiB": for a user whom the limit does
 * not bind. Its fields other than lockable are those of f. */
static void describe_others(const struct sizing_for *f, uint64_t limit, char *to, size_t size)
{
	struct sizing_for bound = *f;
	struct sizing got = {0};
	char shape[80];

	bound.lockable = limit;
	sizing_choose(&bound, &got);
	snprintf(to, size, "; this user may exceed it, and others with this limit get %s",
		 lanes_fit(limit, &got.lanes, &got.depth, &got.block_size)
			 ? shape_text(&got, shape, sizeof shape)
			 : "TCP");
}

void survey_memory(const struct survey *s)
{
	struct rlimit rl = {0};
	struct sizing want = {0}, got = {0};
	struct sizing_for f = {.links = 1};
	char limit[80], wanted[80], room[80], needed[32], origin[TEXT_MAX / 2], remedy[TEXT_MAX];
	char soft[32], hard[32], others[160] = "";
	struct limit_origin from;
	uint64_t mine;

	/* Read it before a library raises the soft limit. */
	getrlimit(RLIMIT_MEMLOCK, &rl);
	find_port_links(s, &f);
	f.lockable = UINT64_MAX;
	sizing_choose(&f, &want);
	/* As rdcp does: it raises the limit, or removes it, if it may. */
	mine = memlock_limit_at(s->sys);
	if (count_needed_bytes(&want) > rlimit_bytes(rl.rlim_max) && mine > rl.rlim_max)
		describe_others(&f, rl.rlim_max, others, sizeof others);
	f.lockable = mine;
	sizing_choose(&f, &got);
	snprintf(limit, sizeof limit, "limit %s (hard %s)",
		 bytes_text(rlimit_bytes(rl.rlim_cur), soft, sizeof soft),
		 bytes_text(rlimit_bytes(rl.rlim_max), hard, sizeof hard));
	bytes_text(count_needed_bytes(&want), needed, sizeof needed);
	shape_text(&want, wanted, sizeof wanted);
	find_origin(s, &from);
	describe_origin(&from, &rl, origin, sizeof origin);
	describe_remedy(&from, &rl, remedy, sizeof remedy);
	if (count_needed_bytes(&want) <= f.lockable)
		survey_found(s, FINDING_OK, "memlock", "", NULL,
			     "locked memory: %s%s; %s take %s; %s", limit, others, wanted, needed,
			     origin);
	else if (lanes_fit(f.lockable, &got.lanes, &got.depth, &got.block_size))
		survey_found(
			s, FINDING_WARNING, "memlock", "", remedy,
			"locked memory: %s, enough for %s; this link needs %s, which take %s; %s",
			limit, shape_text(&got, room, sizeof room), wanted, needed, origin);
	else
		survey_found(
			s, s->port_count ? FINDING_FAILURE : FINDING_WARNING, "memlock", "", remedy,
			"locked memory: %s, too little for one lane, so transfers fall back to "
			"TCP; %s take %s; %s",
			limit, wanted, needed, origin);
}
