/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fail.h"

static const char name_letters[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

/* Takes the ending off a path. */
static void take_access(struct module *m)
{
	char *colon = strrchr(m->path, ':');

	m->may_read = true;
	m->may_write = false;
	if (!colon)
		return;
	if (strcmp(colon, ":rw") == 0)
		m->may_write = true;
	else if (strcmp(colon, ":wo") == 0)
		m->may_write = !(m->may_read = false);
	else if (strcmp(colon, ":ro") != 0)
		return;
	*colon = '\0';
}

int module_parse(const char *text, struct module *m)
{
	size_t len = strspn(text, name_letters);

	memset(m, 0, sizeof *m);
	if (len == 0 || text[len] != '=' || len >= sizeof m->name || text[0] == '.' ||
	    text[0] == '-')
		return fail_as(OUT_USAGE,
			       "--module %s: expected NAME=DIR, with a name of at most %d letters, "
			       "digits, _, . and -",
			       text, MODULE_NAME_MAX - 1);
	memcpy(m->name, text, len);
	if ((size_t)snprintf(m->path, sizeof m->path, "%s", text + len + 1) >= sizeof m->path)
		return fail_as(OUT_USAGE, "--module %s: the path is too long", m->name);
	take_access(m);
	if (!*m->path)
		return fail_as(OUT_USAGE, "--module %s: no directory", text);
	return 0;
}

int module_open(struct module *m)
{
	char *real = realpath(m->path, NULL);
	struct stat st;
	int ret = 0;

	if (!real || stat(real, &st))
		ret = fail("open module %s: %s: %m", m->name, m->path);
	else if (!S_ISDIR(st.st_mode))
		ret = fail("open module %s: %s is not a directory", m->name, m->path);
	else if (strcmp(real, "/") == 0)
		ret = fail_as(OUT_USAGE, "module %s: the root directory cannot be a module",
			      m->name);
	else if (strlen(real) >= sizeof m->path)
		ret = fail("open module %s: the path is too long", m->name);
	else
		memcpy(m->path, real, strlen(real) + 1);
	free(real);
	return ret;
}

const struct module *module_find(const struct module *list, unsigned count, const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return &list[i];
	return NULL;
}
