/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/account.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"

enum { ROOM = 65536 }; /* of one entry of a database */

/* err: what a lookup that found nothing returned. Some databases report that as an error. */
static int fail_lookup(const char *kind, const char *name, int err)
{
	if (err == 0 || err == ENOENT || err == ESRCH)
		return fail_as(OUT_USAGE, "there is no %s %s", kind, name);
	errno = err;
	return fail("look up %s %s: %m", kind, name);
}

/* The last number is no user and no group: it means "unchanged" to the kernel. */
static bool parse_number(const char *text, uint32_t *to)
{
	unsigned long long n;

	if (!*text || strlen(text) > 10 || text[strspn(text, "0123456789")])
		return false;
	n = strtoull(text, NULL, 10);
	*to = (uint32_t)n;
	return n < UINT32_MAX;
}

/* These look up a name with room for an entry. They return as getpwnam_r(3) does. */
typedef int find_id(const char *name, char room[static ROOM], bool *found, uint32_t *id);

static int find_user(const char *name, char room[static ROOM], bool *found, uint32_t *id)
{
	struct passwd pw, *entry = NULL;
	int err = getpwnam_r(name, &pw, room, ROOM, &entry);

	*found = entry != NULL;
	if (entry)
		*id = pw.pw_uid;
	return err;
}

static int find_group(const char *name, char room[static ROOM], bool *found, uint32_t *id)
{
	struct group gr, *entry = NULL;
	int err = getgrnam_r(name, &gr, room, ROOM, &entry);

	*found = entry != NULL;
	if (entry)
		*id = gr.gr_gid;
	return err;
}

/* A number, or what `find' finds. kind: for messages. */
static int set_id(const char *kind, const char *text, find_id *find, uint32_t *id)
{
	bool found;
	char *room;
	int err;

	if (parse_number(text, id))
		return 0;
	room = malloc(ROOM);
	if (!room)
		return fail_as(OUT_MEMORY, "look up %s %s: %m", kind, text);
	do
		err = find(text, room, &found, id);
	while (err == EINTR);
	free(room);
	return found ? 0 : fail_lookup(kind, text, err);
}

int account_set_user(struct run_as *a, const char *text)
{
	a->has_user = true;
	return set_id("user", text, find_user, &a->user);
}

int account_set_group(struct run_as *a, const char *text)
{
	a->has_group = true;
	return set_id("group", text, find_group, &a->group);
}

static int fill_groups(struct run_as *a, const struct passwd *pw)
{
	int count = ACCOUNT_GROUPS_MAX;

	if (!a->has_group)
		a->group = pw->pw_gid;
	if (getgrouplist(pw->pw_name, a->group, a->groups, &count) < 0)
		return count > ACCOUNT_GROUPS_MAX
			       ? fail_as(OUT_USAGE, "user %s is in more than %d groups",
					 pw->pw_name, ACCOUNT_GROUPS_MAX)
			       : fail_as(OUT_MEMORY, "look up the groups of user %s: %m",
					 pw->pw_name);
	a->group_count = (unsigned)count;
	return 0;
}

/* A user who has no entry in the database has no groups but the one of the configuration. */
static int find_groups(struct run_as *a)
{
	struct passwd pw, *found = NULL;
	char *room = malloc(ROOM);
	int ret = 0, err;

	if (!room)
		return fail_as(OUT_MEMORY, "look up user %u: %m", (unsigned)a->user);
	do
		err = getpwuid_r(a->user, &pw, room, ROOM, &found);
	while (err == EINTR);
	if (found)
		ret = fill_groups(a, &pw);
	else if (err && err != ENOENT && err != ESRCH)
		ret = fail("look up user %u: %s", (unsigned)a->user, strerror(err));
	else if (!a->has_group)
		ret = fail_as(OUT_USAGE, "user %u has no group: give a gid, too",
			      (unsigned)a->user);
	free(room);
	return ret;
}

int account_complete(struct run_as *a)
{
	if (a->has_user && find_groups(a))
		return -1;
	if (a->has_user)
		a->has_group = true;
	if (geteuid() == 0)
		return 0;
	if ((a->has_user && a->user != geteuid()) || (a->has_group && a->group != getegid()))
		return fail_as(OUT_USAGE, "only root can serve a module as another user or group");
	return 0;
}

int account_enter(const struct run_as *a)
{
	/* One that is not root runs as this account already. */
	if (!a || geteuid() != 0 || (!a->has_user && !a->has_group))
		return 0;
	if (setgroups(a->group_count, a->groups) || setresgid(a->group, a->group, a->group))
		return fail_as(OUT_START, "become group %u: %m", (unsigned)a->group);
	if (a->has_user && setresuid(a->user, a->user, a->user))
		return fail_as(OUT_START, "become user %u: %m", (unsigned)a->user);
	return 0;
}
