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

bool module_name_is_valid(const char *name, size_t len)
{
	return len > 0 && len < MODULE_NAME_MAX && strspn(name, name_letters) >= len &&
	       name[0] != '.' && name[0] != '-';
}

int module_parse(const char *text, struct module *m)
{
	size_t len = strcspn(text, "=");

	memset(m, 0, sizeof *m);
	m->list = true;
	if (text[len] != '=' || !module_name_is_valid(text, len))
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

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	while (*words) {
		size_t n = strcspn(words, " ");

		if (n == len && memcmp(words, word, n) == 0)
			return true;
		words += n;
		words += strspn(words, " ");
	}
	return false;
}

static int check_user(const struct module *m, const char *user)
{
	if (user_is_anonymous(user))
		return m->anonymous ? 0
				    : fail_as(OUT_AUTH,
					      "module %s takes no client without a key: use "
					      "--key-file=FILE",
					      m->name);
	if (!m->users[0] || has_word(m->users, user))
		return 0;
	if (strcmp(user, "-") != 0)
		return fail_as(OUT_AUTH, "user %s may not use module %s", user, m->name);
	return fail_as(OUT_AUTH,
		       "module %s is for certain users only: name one, as in "
		       "rdma://USER@HOST/%s",
		       m->name, m->name);
}

int module_admit(const struct module *m, const char *user, const union address *from)
{
	char text[80];

	if (check_user(m, user))
		return -1;
	if (!host_rules_admit(&m->allow, &m->deny, from)) {
		union address host = address_with_port(from, 0);

		return fail_as(OUT_AUTH, "%s may not use module %s",
			       address_text(&host, text, sizeof text), m->name);
	}
	return 0;
}

struct module_rights module_rights(const struct module *m, const char *user)
{
	bool anonymous = user_is_anonymous(user);

	return (struct module_rights){
		.read = m->may_read,
		.write = m->may_write && (!anonymous || m->anonymous_writes),
		.delete = m->may_delete && !anonymous,
		.remove = m->may_remove && !anonymous,
	};
}
