/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/name.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

const char *name_last(const char *path, char *to, size_t size)
{
	size_t end = strlen(path);
	size_t from;

	while (end > 0 && path[end - 1] == '/')
		end--;
	from = end;
	while (from > 0 && path[from - 1] != '/')
		from--;
	if (end - from == 1 && path[from] == '.')
		from = end;
	if (end - from >= size)
		from = end;
	memcpy(to, path + from, end - from);
	to[end - from] = '\0';
	return to;
}

const char *name_relative(const char *path)
{
	static const char mark[] = "/./";
	const char *cut = strstr(path, mark);

	return cut ? cut + sizeof mark - 1 : path;
}

bool name_is_plain(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= NAME_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

bool name_is_pattern(const char *name)
{
	return strpbrk(name, "*?[") != NULL;
}

/* If glob() expands want, a backslash escapes in all components, also in those without a
 * wildcard. */
bool name_matches_component(const char *name, const char *component, const char *want)
{
	if (!name_is_plain(name))
		return false;
	return strcmp(name, component) == 0 ||
	       (name_is_pattern(want) && fnmatch(component, name, FNM_PERIOD) == 0);
}

bool name_matches_want(const char *name, const char *want)
{
	char last[PATH_MAX]; /* a pattern may be longer than a name */

	/* "-" is stdin, which has no name; or a file called - on another host. */
	if (strcmp(want, "-") == 0 && !*name)
		return true;
	name_last(want, last, sizeof last);
	return name_matches_component(name, last, want);
}
