/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/tilde.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"

/* As in shells, ~ is $HOME, or the home directory in the user database if HOME is not set.  NULL
 * with errno; 0: the user is unknown. */
static const char *home_of(const char *user, char *room, size_t size)
{
	struct passwd pw, *found = NULL;
	const char *home = *user ? NULL : getenv("HOME");

	if (home && *home)
		return home;
	do
		errno = *user ? getpwnam_r(user, &pw, room, size, &found)
			      : getpwuid_r(geteuid(), &pw, room, size, &found);
	while (errno == EINTR);
	return found && found->pw_dir && *found->pw_dir ? found->pw_dir : NULL;
}

/* Errors with which the databases of getpwnam(3) report that there is no such user. */
static bool means_no_such_user(int err)
{
	return err == 0 || err == ENOENT || err == ESRCH || err == EBADF || err == EPERM;
}

static int fail_no_home(const char *path, const char *user)
{
	if (!means_no_such_user(errno))
		return fail("look up the home directory of %s: %m", *user ? user : "this user");
	if (*user)
		return fail_as(OUT_NO_SOURCE, "%s: unknown user %s", path, user);
	return fail_as(OUT_NO_SOURCE, "%s: HOME is not set, and uid %u has no home directory", path,
		       (unsigned)geteuid());
}

int tilde_expand(const char *path, char *to, size_t size)
{
	const char *rest = path + strcspn(path, "/");
	const char *home = "";
	char user[LOGIN_NAME_MAX];
	char room[16 << 10]; /* for all of an entry; glibc itself suggests 1 KiB */
	int n;

	if (path[0] != '~') {
		rest = path;
	} else {
		n = snprintf(user, sizeof user, "%.*s", (int)(rest - path - 1), path + 1);
		errno = 0;
		home = n < (int)sizeof user ? home_of(user, room, sizeof room) : NULL;
		if (!home)
			return fail_no_home(path, user);
	}
	n = snprintf(to, size, "%s%s", home, rest);
	if (n < 0 || (size_t)n >= size)
		return fail("%s: name too long", path);
	return 0;
}
