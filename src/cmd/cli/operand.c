/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/operand.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/fail.h"
#include "cmd/cli/amount.h"
#include "copy/place/place_dst.h"

/* Returns the colon after the host, or NULL for a local name. */
static const char *find_colon(const char *text)
{
	const char *at = text;
	const char *p;

	/* user@[v6]:path, or [v6]:path */
	p = strpbrk(text, "@/[:");
	if (p && *p == '@')
		at = p + 1;
	if (*at == '[') {
		const char *end = strchr(at, ']');

		if (end && end[1] == ':' && !memchr(at, '/', (size_t)(end - at)))
			return end + 1;
	}
	p = strpbrk(text, "/:");
	return p && *p == ':' && p != text ? p : NULL;
}

/* The host becomes one word of the ssh command, so it must not look like an option or like two
 * words. */
static int check_host(const char *text, const char *host)
{
	const char *name = strrchr(host, '@');

	name = name ? name + 1 : host;
	if (!*name)
		return fail_as(OUT_USAGE, "%s: no host name before the colon", text);
	if (*host == '-' || *name == '-')
		return fail_as(OUT_USAGE, "%s: a host name may not begin with '-'", text);
	for (const char *p = host; *p; p++) {
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return fail_as(OUT_USAGE,
				       "%s: the host name contains a blank or control character",
				       text);
	}
	return 0;
}

int descriptor_named(const char *path)
{
	static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
	static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
	uint64_t n;

	for (int i = 0; i < 3; i++) {
		if (strcmp(path, names[i]) == 0)
			return i;
	}
	for (int i = 0; i < 2; i++) {
		size_t len = strlen(folders[i]);

		if (strncmp(path, folders[i], len) == 0 &&
		    parse_number(path + len, 0, INT_MAX, &n) == 0)
			return (int)n;
	}
	return -1;
}

int operand_descriptor(const char *path, int *fd)
{
	struct stat st;

	*fd = descriptor_named(path);
	if (*fd < 0)
		*fd = dst_descriptor(path);
	if (*fd < 0)
		return 0;
	if (fstat(*fd, &st))
		return fail("open %s: %m", path);
	if (S_ISDIR(st.st_mode))
		*fd = -1;
	return 0;
}

/* The scheme of a URL would otherwise pass for a host name. */
static int refuse_url(const char *text)
{
	static const struct {
		const char *scheme, *why;
	} urls[] = {
		{"scp://", "URLs are not supported; use HOST:PATH, and -P for the port of ssh"},
		{"sftp://", "URLs are not supported; use HOST:PATH, and -P for the port of ssh"},
		{"ssh://", "URLs are not supported; use HOST:PATH, and -P for the port of ssh"},
		{"rdcp://", "a path at a rdcpd is rdma://HOST/MODULE/PATH"},
		{"rdcpd://", "a path at a rdcpd is rdma://HOST/MODULE/PATH"},
		{"rsync://", "rsync daemons are not supported; use HOST:PATH, which uses ssh"},
	};

	for (unsigned i = 0; i < sizeof urls / sizeof *urls; i++) {
		if (strncasecmp(text, urls[i].scheme, strlen(urls[i].scheme)) == 0)
			return fail_as(OUT_USAGE, "%s: %s", text, urls[i].why);
	}
	return 0;
}

/* host::module is rsync's; host:port:path is hdrdmacp's. */
static int refuse_foreign_path(const char *text, int host_len, const char *path)
{
	size_t digits = strspn(path, "0123456789");

	if (*path == ':')
		return fail_as(
			OUT_USAGE,
			"%s: rsync daemons are not supported; use HOST:PATH, which uses ssh, "
			"or rdma://HOST/MODULE/PATH of a rdcpd (for a path that begins with a colon: %.*s:./%s)",
			text, host_len, text, path);
	if (digits > 0 && digits <= 5 && path[digits] == ':' && path[digits + 1] == '/')
		return fail_as(
			OUT_USAGE,
			"%s: a port before the path is not supported; use %.*s:%s (-P sets the "
			"port of ssh; for a path that begins like this: %.*s:./%s)",
			text, host_len, text, path + digits + 1, host_len, text, path);
	return 0;
}

static const char scheme[] = "rdma://";

bool operand_is_daemon(const char *host)
{
	return strncasecmp(host, scheme, sizeof scheme - 1) == 0;
}

/* Parses "host", "host:port", "[v6]" or "[v6]:port". Returns what follows, or NULL. */
static const char *parse_authority(const char *text, struct daemon_url *u)
{
	bool brackets = *text == '[';
	const char *host = text + brackets;
	size_t len = strcspn(host, brackets ? "]/" : ":/");
	const char *end = host + len;
	char digits[8] = "";
	uint64_t port = 0;

	if (len == 0 || len >= sizeof u->host || (brackets && *end++ != ']'))
		return NULL;
	memcpy(u->host, host, len);
	u->host[len] = '\0';
	if (*end == ':') {
		len = strcspn(++end, "/");
		if (len == 0 || len >= sizeof digits)
			return NULL;
		memcpy(digits, end, len);
		if (parse_number(digits, 1, 65535, &port))
			return NULL;
		end += len;
	}
	u->port = (unsigned)port;
	return *end == '/' ? end + 1 : *end ? NULL : end;
}

/* Parses "user@". Returns what follows, or NULL. */
static const char *parse_user(const char *text, struct daemon_url *u)
{
	size_t len = strcspn(text, "@/");

	memcpy(u->user, "-", 2);
	if (text[len] != '@')
		return text;
	if (!user_name_is_valid(text, len))
		return NULL;
	memcpy(u->user, text, len);
	u->user[len] = '\0';
	return text + len + 1;
}

static int parse_url(const char *text, struct daemon_url *u, const char **rest, bool may_be_host)
{
	const char *module;
	size_t len;

	memset(u, 0, sizeof *u);
	module = parse_user(text + sizeof scheme - 1, u);
	module = module ? parse_authority(module, u) : NULL;
	len = module ? strcspn(module, "/") : 0;
	*rest = "";
	if (module && len == 0 && may_be_host && !*module)
		return check_host(text, u->host);
	if (module && len == 0)
		return fail_as(OUT_USAGE,
			       "%s: the module is missing; rdcp lists the modules with %s as its "
			       "only operand",
			       text, text);
	/* A module's name has the letters of a user's. */
	if (!module && strstr(text + sizeof scheme - 1, "::") && !strchr(text, '['))
		return fail_as(
			OUT_USAGE,
			"%s: write an IPv6 address in brackets: rdma://[ADDRESS]/MODULE/PATH",
			text);
	if (!module || len >= sizeof u->module || !user_name_is_valid(module, len))
		return fail_as(OUT_USAGE,
			       "%s: expected rdma://HOST/MODULE/PATH or "
			       "rdma://HOST:PORT/MODULE/PATH",
			       text);
	memcpy(u->module, module, len);
	*rest = module + len + strspn(module + len, "/");
	return check_host(text, u->host);
}

int operand_parse_daemon(const char *text, struct daemon_url *u, const char **rest)
{
	return parse_url(text, u, rest, false);
}

int operand_parse_listing(const char *text, struct daemon_url *u, const char **rest)
{
	return parse_url(text, u, rest, true);
}

/* All operands in one module have the same host. */
static int parse_url_operand(const char *text, struct operand *t)
{
	struct daemon_url u;
	char port[16] = "";
	bool v6;

	if (operand_parse_daemon(text, &u, &t->path))
		return -1;
	v6 = strchr(u.host, ':') != NULL;
	if (u.port)
		snprintf(port, sizeof port, ":%u", u.port);
	if ((size_t)snprintf(t->host, sizeof t->host, "%s%s%s%s%s%s%s/%s", scheme,
			     *u.user == '-' ? "" : u.user, *u.user == '-' ? "" : "@", v6 ? "[" : "",
			     u.host, v6 ? "]" : "", port, u.module) >= sizeof t->host)
		return fail_as(OUT_USAGE, "%s: the host name is too long", text);
	return 0;
}

int operand_parse(const char *text, struct operand *t)
{
	const char *colon;
	size_t len = 0;

	memset(t, 0, sizeof *t);
	t->path = text;
	if (!*text)
		return fail_as(OUT_USAGE, "SRC and DST must not be empty");
	if (strcmp(text, "-") == 0) {
		t->stdio = true;
		return 0;
	}
	if (operand_is_daemon(text))
		return parse_url_operand(text, t);
	if (refuse_url(text))
		return -1;
	colon = find_colon(text);
	if (!colon)
		return 0;
	t->path = colon + 1;
	if (refuse_foreign_path(text, (int)(colon - text), t->path))
		return -1;
	if ((size_t)(colon - text) >= sizeof t->host)
		return fail_as(OUT_USAGE, "%s: the host name is too long", text);
	for (const char *p = text; p < colon; p++) {
		if (!(*p == ']' && p + 1 == colon) &&
		    !(*p == '[' && (p == text || p[-1] == '@') && colon[-1] == ']'))
			t->host[len++] = *p;
	}
	t->host[len] = '\0';
	return check_host(text, t->host);
}
