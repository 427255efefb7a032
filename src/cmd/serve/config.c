/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text_file.h"
#include "cmd/end/refusals.h"
#include "copy/attr/modes.h"
#include "cmd/cli/amount.h"
#include "session/channel/key_ring.h"

enum { TIMEOUT_MOST_S = 86400 };

enum key_kind {
	KEY_PATH,
	KEY_COMMENT,
	KEY_ADDRESS,
	KEY_PORT,
	KEY_SESSIONS,
	KEY_MEMORY,
	KEY_SIZE,
	KEY_SECONDS,
	KEY_DRAIN,
	KEY_YES,
	KEY_NO,
	KEY_USERS,
	KEY_HOSTS,
	KEY_CHMOD,
	KEY_REFUSED,
	KEY_UID,
	KEY_GID,
	KEY_TRANSPORT,
	KEY_PORTS,
	KEY_TOS
};

/* KEY_NO: yes means false. */
struct key_row {
	const char *name;
	enum key_kind kind;
	bool of_module;
	size_t at; /* in struct config or struct module */
};
#define DAEMON(field) false, offsetof(struct config, field)
#define MODULE(field) true, offsetof(struct module, field)

static const struct key_row key_rows[] = {
	{"address", KEY_ADDRESS, DAEMON(address)},
	{"port", KEY_PORT, DAEMON(port)},
	{"port range", KEY_PORTS, DAEMON(transports)},
	{"transport", KEY_TRANSPORT, DAEMON(transports.want)},
	{"tos", KEY_TOS, DAEMON(transports.tos)},
	{"key file", KEY_PATH, DAEMON(key_file)},
	{"secrets file", KEY_PATH, DAEMON(secrets)},
	{"max sessions", KEY_SESSIONS, DAEMON(limits.sessions)},
	{"max sessions per user", KEY_SESSIONS, DAEMON(limits.sessions_per_user)},
	{"memory", KEY_MEMORY, DAEMON(limits)},
	{"timeout", KEY_SECONDS, DAEMON(limits.idle_s)},
	{"hosts allow", KEY_HOSTS, DAEMON(allow)},
	{"hosts deny", KEY_HOSTS, DAEMON(deny)},
	{"drain limit", KEY_DRAIN, DAEMON(drain_s)},
	{"path", KEY_PATH, MODULE(path)},
	{"comment", KEY_COMMENT, MODULE(comment)},
	{"list", KEY_YES, MODULE(list)},
	{"read only", KEY_NO, MODULE(may_write)},
	{"write only", KEY_NO, MODULE(may_read)},
	{"delete", KEY_YES, MODULE(may_delete)},
	{"remove sources", KEY_YES, MODULE(may_remove)},
	{"max connections", KEY_SESSIONS, MODULE(max_sessions)},
	{"max bytes", KEY_SIZE, MODULE(max_bytes)},
	{"min free", KEY_SIZE, MODULE(min_free)},
	{"uid", KEY_UID, MODULE(account)},
	{"gid", KEY_GID, MODULE(account)},
	{"anonymous", KEY_YES, MODULE(anonymous)},
	{"anonymous write", KEY_YES, MODULE(anonymous_writes)},
	{"users", KEY_USERS, MODULE(users)},
	{"hosts allow", KEY_HOSTS, MODULE(allow)},
	{"hosts deny", KEY_HOSTS, MODULE(deny)},
	{"incoming chmod", KEY_CHMOD, MODULE(incoming_chmod)},
	{"refuse options", KEY_REFUSED, MODULE(refused)},
	{"encryption required", KEY_YES, MODULE(must_encrypt)},
	{"fsync", KEY_YES, MODULE(fsync)},
};
enum { KEY_COUNT = sizeof key_rows / sizeof *key_rows, KEY_NAME_MAX = 64 };

struct parser {
	const char *path;
	struct config *c;
	struct module *module; /* the present section; NULL: the daemon's */
	struct module *wrong; /* a section whose first line is wrong: its keys are only checked */
	bool seen[KEY_COUNT]; /* keys of this section */
	unsigned errors;
	enum outcome code; /* of the errors: OUT_USAGE, unless something else failed */
};

const char *config_key(unsigned i, bool *of_module)
{
	if (i >= KEY_COUNT)
		return NULL;
	*of_module = key_rows[i].of_module;
	return key_rows[i].name;
}

/* ---- values ------------------------------------------------------------------------------ */

static int set_text(const char *value, char *to, size_t size)
{
	if ((size_t)snprintf(to, size, "%s", value) >= size)
		return fail_as(OUT_USAGE, "the value is longer than %zu bytes", size - 1);
	return 0;
}

static int set_path(const char *value, char *to)
{
	if (value[0] != '/')
		return fail_as(OUT_USAGE, "%s is no absolute path", value);
	return set_text(value, to, PATH_MAX);
}

static int set_port(struct config *c, const char *value)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	if (!isdigit((unsigned char)*value) || *end || n > UINT16_MAX)
		return fail_as(OUT_USAGE, "%s is no port: expected 0 to %d", value, UINT16_MAX);
	c->port = (unsigned)n;
	c->has_port = true;
	return 0;
}

static int set_sessions(const char *value, unsigned *to)
{
	uint64_t n;

	if (parse_number(value, 1, SESSIONS_MAX, &n))
		return fail_as(OUT_USAGE, "%s is no number of sessions: expected 1 to %d", value,
			       SESSIONS_MAX);
	*to = (unsigned)n;
	return 0;
}

static int set_seconds(const char *value, unsigned most, unsigned *to)
{
	uint64_t n;

	if (parse_number(value, 0, most, &n))
		return fail_as(OUT_USAGE, "%s is no number of seconds: expected 0 to %u", value,
			       most);
	*to = (unsigned)n;
	return 0;
}

static int set_size(const char *value, uint64_t *to)
{
	return parse_size(value, to) ? fail_as(OUT_USAGE, "%s is no size, such as 2G", value) : 0;
}

static int set_memory(const char *value, struct limits *to)
{
	uint64_t bytes;

	return set_size(value, &bytes) ? -1 : limits_set_memory(to, bytes);
}

static int set_timeout(struct config *c, const char *value)
{
	c->has_timeout = true;
	return set_seconds(value, TIMEOUT_MOST_S, &c->limits.idle_s);
}

static int set_bool(const char *value, bool *to)
{
	static const char *const words[][2] = {{"no", "yes"}, {"false", "true"}, {"0", "1"}};

	for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
		for (unsigned yes = 0; yes < 2; yes++)
			if (strcasecmp(value, words[i][yes]) == 0) {
				*to = yes;
				return 0;
			}
	return fail_as(OUT_USAGE, "%s is neither yes nor no", value);
}

/* Puts the names into to, with one blank between them. */
static int set_users(const char *value, char to[static MODULE_USERS_MAX])
{
	static const char between[] = " \t,";
	size_t used = 0;

	for (value += strspn(value, between); *value; value += strspn(value, between)) {
		size_t len = strcspn(value, between);

		if (!user_name_is_valid(value, len))
			return fail_as(OUT_USAGE, "%.*s is no name of a user", (int)len, value);
		if (len == strlen(ANONYMOUS_USER) && memcmp(value, ANONYMOUS_USER, len) == 0)
			return fail_as(
				OUT_USAGE,
				"%s is no user: clients without a key need \"anonymous = yes\"",
				ANONYMOUS_USER);
		if (used + len + 2 > MODULE_USERS_MAX)
			return fail_as(OUT_USAGE, "the names are longer than %d bytes",
				       MODULE_USERS_MAX);
		if (used > 0)
			to[used++] = ' ';
		memcpy(to + used, value, len);
		used += len;
		value += len;
	}
	to[used] = '\0';
	return used ? 0 : fail_as(OUT_USAGE, "no user is named");
}

static int set_chmod(const char *value, char *to)
{
	struct modes *m = NULL;
	int rc = modes_parse(value, &m);

	modes_free(m);
	if (rc && failed()->code != OUT_USAGE)
		return -1;
	return rc ? fail_as(OUT_USAGE, "%s is no change of modes, such as D755,F644", value)
		  : set_text(value, to, CHMOD_MAX);
}

static int set_transport(const char *value, enum transport *to)
{
	return parse_transport(value, to) || *to == TRANSPORT_SSH
		       ? fail_as(OUT_USAGE, "%s is no transport: expected auto, rdma or tcp", value)
		       : 0;
}

static int set_ports(const char *value, struct transports *to)
{
	return parse_ports(value, &to->port_lo, &to->port_hi)
		       ? fail_as(OUT_USAGE, "%s is no range of ports, such as 7100-7199", value)
		       : 0;
}

static int set_tos(const char *value, unsigned *to)
{
	return parse_tos(value, to) ? fail_as(OUT_USAGE,
					      "%s is no type of service: expected 0 to 255, or a "
					      "DSCP as af21, cs1, ef, le",
					      value)
				    : 0;
}

static int set_value(struct parser *p, const struct key_row *row, const char *value)
{
	char *at = (row->of_module ? (char *)p->module : (char *)p->c) + row->at;
	bool *flag = (bool *)at;

	switch (row->kind) {
	case KEY_PATH:
		return set_path(value, at);
	case KEY_COMMENT:
		return set_text(value, at, TEXT_MAX);
	case KEY_ADDRESS:
		return set_text(value, at, CONFIG_ADDRESS_MAX);
	case KEY_PORT:
		return set_port(p->c, value);
	case KEY_SESSIONS:
		return set_sessions(value, (unsigned *)(void *)at);
	case KEY_MEMORY:
		return set_memory(value, (struct limits *)(void *)at);
	case KEY_SIZE:
		return set_size(value, (uint64_t *)(void *)at);
	case KEY_SECONDS:
		return set_timeout(p->c, value);
	case KEY_DRAIN:
		return set_seconds(value, DRAIN_S_MAX, (unsigned *)(void *)at);
	case KEY_YES:
		return set_bool(value, flag);
	case KEY_NO:
		if (set_bool(value, flag))
			return -1;
		*flag = !*flag;
		return 0;
	case KEY_USERS:
		return set_users(value, at);
	case KEY_HOSTS:
		return host_rules_parse(value, (struct host_rules *)(void *)at);
	case KEY_CHMOD:
		return set_chmod(value, at);
	case KEY_REFUSED:
		return refusals_parse(value, (uint64_t *)(void *)at);
	case KEY_UID:
		return account_set_user((struct run_as *)(void *)at, value);
	case KEY_TRANSPORT:
		return set_transport(value, (enum transport *)(void *)at);
	case KEY_PORTS:
		return set_ports(value, (struct transports *)(void *)at);
	case KEY_TOS:
		return set_tos(value, (unsigned *)(void *)at);
	case KEY_GID:
		return account_set_group((struct run_as *)(void *)at, value);
	}
	return -1;
}

/* ---- lines ------------------------------------------------------------------------------- */

/* As the table has it: lower case, one blank between words. */
static void normalize_key(const char *from, size_t len, char to[static KEY_NAME_MAX])
{
	size_t used = 0;

	for (size_t i = 0; i < len && used < KEY_NAME_MAX - 1; i++) {
		char c = from[i] == '_' || from[i] == '\t' ? ' ' : from[i];

		if (c == ' ' && used > 0 && to[used - 1] == ' ')
			continue;
		to[used++] = (char)tolower((unsigned char)c);
	}
	while (used > 0 && to[used - 1] == ' ')
		used--;
	to[used] = '\0';
}

/* One of this kind of section, else one of the other. */
static const struct key_row *find_key(const char *name, bool of_module)
{
	const struct key_row *found = NULL;

	for (unsigned i = 0; i < KEY_COUNT; i++)
		if (strcmp(key_rows[i].name, name) == 0 &&
		    (!found || key_rows[i].of_module == of_module))
			found = &key_rows[i];
	return found;
}

static int parse_setting(struct parser *p, const char *line)
{
	const char *sign = strchr(line, '=');
	const struct key_row *row;
	char name[KEY_NAME_MAX];

	if (!sign)
		return fail_as(OUT_USAGE, "expected KEY = VALUE or [MODULE]");
	normalize_key(line, (size_t)(sign - line), name);
	row = find_key(name, p->module != NULL);
	if (!row)
		return fail_as(OUT_USAGE, "unknown key \"%s\"", name);
	if (row->of_module != (p->module != NULL))
		return fail_as(OUT_USAGE,
			       row->of_module ? "\"%s\" belongs below a [MODULE]"
					      : "\"%s\" belongs above the first [MODULE]",
			       name);
	if (p->seen[row - key_rows])
		return fail_as(OUT_USAGE, "\"%s\" is given twice", name);
	p->seen[row - key_rows] = true;
	sign++;
	sign += strspn(sign, " \t");
	if (!*sign)
		return fail_as(OUT_USAGE, "\"%s\" has no value", name);
	return set_value(p, row, sign);
}

static int check_anonymous(const struct module *m)
{
	if (m->anonymous_writes && !(m->anonymous && m->may_write))
		return fail_as(OUT_USAGE,
			       "module %s: \"anonymous write\" needs \"anonymous = yes\" and "
			       "\"read only = no\"",
			       m->name);
	if (m->anonymous && !m->may_read && !m->anonymous_writes)
		return fail_as(OUT_USAGE,
			       "module %s is write only: clients without a key could do nothing "
			       "without \"anonymous write = yes\"",
			       m->name);
	return 0;
}

/* Whether this section has a key of a module, right or wrong. */
static bool has_key(const struct parser *p, const char *name)
{
	return p->seen[find_key(name, true) - key_rows];
}

/* What only the whole section shows. */
static int end_section(struct parser *p)
{
	struct module *m = p->module == p->wrong ? NULL : p->module;

	if (m && !m->path[0] && has_key(p, "path"))
		return 0;
	if (m && !m->path[0])
		return fail_as(OUT_USAGE, "module %s has no path", m->name);
	if (m && !m->may_read && !m->may_write)
		return fail_as(OUT_USAGE,
			       "module %s can be neither read nor written: a write only one needs "
			       "\"read only = no\"",
			       m->name);
	if (m && m->may_delete && !m->may_write)
		return fail_as(OUT_USAGE, "module %s is read only: nothing can be deleted",
			       m->name);
	if (m && m->may_remove && !(m->may_read && m->may_write))
		return fail_as(OUT_USAGE,
			       "module %s cannot be both read and written: no sources can be "
			       "removed",
			       m->name);
	if (m && check_anonymous(m))
		return -1;
	if (m && account_complete(&m->account)) {
		struct failure why = *failed();

		return fail_as(why.code, "module %s: %s", m->name, why.text);
	}
	return 0;
}

static int begin_section(struct parser *p, const char *line)
{
	size_t len = strcspn(line + 1, "]");
	char name[MODULE_NAME_MAX];

	memset(p->seen, 0, sizeof p->seen);
	p->module = p->wrong;
	if (strcmp(line + 1 + len, "]") != 0 || !module_name_is_valid(line + 1, len))
		return fail_as(OUT_USAGE,
			       "%s is no [MODULE], with a name of at most %d letters, digits, _, . "
			       "and -",
			       line, MODULE_NAME_MAX - 1);
	snprintf(name, sizeof name, "%.*s", (int)len, line + 1);
	if (p->c->module_count == MODULES_MAX)
		return fail_as(OUT_USAGE, "more than %d modules", MODULES_MAX);
	if (module_find(p->c->modules, p->c->module_count, name))
		return fail_as(OUT_USAGE, "module %s is given twice", name);
	p->module = &p->c->modules[p->c->module_count++];
	memcpy(p->module->name, name, sizeof name);
	p->module->may_read = p->module->list = true;
	return 0;
}

static void log_error(struct parser *p, unsigned number)
{
	log_at(LOG_ERROR, "%s:%u: %s", p->path, number, failed()->text);
	p->errors++;
	if (failed()->code != OUT_USAGE)
		p->code = failed()->code;
}

/* Takes one line, without blanks at its ends. */
static void parse_line(struct parser *p, const char *line, unsigned number)
{
	int rc = 0;

	if (*line == '[') {
		if (end_section(p))
			log_error(p, number - 1);
		rc = begin_section(p, line);
	} else if (*line && *line != '#' && *line != ';') {
		rc = parse_setting(p, line);
	}
	if (rc)
		log_error(p, number);
}

/* Changes text. */
static void parse_lines(struct parser *p, char *text)
{
	unsigned number = 0;
	char *end;

	for (; *text; text = end) {
		size_t len = strcspn(text, "\n");

		end = text + len + (text[len] == '\n');
		while (len > 0 && strchr(" \t\r", text[len - 1]))
			len--;
		text[len] = '\0';
		parse_line(p, text + strspn(text, " \t"), ++number);
	}
	if (end_section(p))
		log_error(p, number);
}

/* ---- the file ---------------------------------------------------------------------------- */

static int check_owner(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail("examine %s: %m", path);
	if (!S_ISREG(st.st_mode))
		return fail_as(OUT_USAGE, "%s is no regular file", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return fail_as(OUT_USAGE, "%s belongs to another user", path);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return fail_as(OUT_USAGE, "others may write to %s (chmod go-w)", path);
	return 0;
}

void config_init(struct config *c)
{
	c->drain_s = DRAIN_S;
	c->transports.want = TRANSPORT_AUTO;
}

static int parse_text(const char *path, char *text, struct config *c)
{
	static struct module wrong;
	struct parser p = {.path = path, .c = c, .wrong = &wrong, .code = OUT_USAGE};

	parse_lines(&p, text);
	return p.errors ? fail_as(p.code, "%s has %u error%s", path, p.errors,
				  p.errors == 1 ? "" : "s")
			: 0;
}

int config_read(const char *path, struct config *c)
{
	int fd = RETRIED(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
	char *text;
	int ret = -1;

	if (fd < 0)
		return fail("open %s: %m", path);
	text = check_owner(fd, path) ? NULL : text_file_read(fd, path);
	if (text)
		ret = parse_text(path, text, c);
	text_file_free(text);
	close_fd(fd);
	return ret;
}
