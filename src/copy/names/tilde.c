/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/tilde.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"

/* As in shells, ~ is $HOME, or the home directory in the user database if HOME is not set. */
static const char *home_of(const char *user, char *room, size_t size)
{
	struct passwd pw, *found = NULL;
	const char *home = *user ? NULL : getenv("HOME");

	if (home && *home)
		return home;
	if (*user)
		getpwnam_r(user, &pw, room, size, &found);
	else
		getpwuid_r(geteuid(), &pw, room, size, &found);
	return found && found->pw_dir && *found->pw_dir ? found->pw_dir : NULL;
}

int tilde_expand(const char *path, char *to, size_t size)
{
	const char *rest = path + strcspn(path, "/");
	const char *home = "";
	char user[LOGIN_NAME_MAX];
	char room[4096];
	int n;

	if (path[0] != '~') {
		rest = path;
	} else {
		n = snprintf(user, sizeof user, "%.*s", (int)(rest - path - 1), path + 1);
		home = n < (int)sizeof user ? home_of(user, room, sizeof room) : NULL;
		if (!home)
			return fail_as(OUT_NO_SOURCE, "%s: unknown user %s", path, user);
	}
	n = snprintf(to, size, "%s%s", home, rest);
	if (n < 0 || (size_t)n >= size)
		return fail("%s: name too long", path);
	return 0;
}
