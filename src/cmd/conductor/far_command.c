/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/far_command.h"

#include <stdio.h>
#include <string.h>
#include "base/fail.h"

static const char plain[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-@%:=,";

int shell_quote(const char *word, char *to, size_t size)
{
	size_t used = 0;

	if (word[0] == '~') {
		size_t len = strcspn(word, "/");

		if (len >= size || strspn(word + 1, plain) + 1 < len)
			return -1;
		memcpy(to, word, len);
		used = len;
		word += len;
	}
	if (word[strspn(word, plain)] == '\0')
		return (size_t)snprintf(to + used, size - used, "%s", word) < size - used ? 0 : -1;
	if (used + 3 > size)
		return -1;
	to[used++] = '\'';
	for (; *word; word++) {
		const char *piece = *word == '\'' ? "'\\''" : NULL;
		size_t len = piece ? 4 : 1;

		if (used + len + 2 > size)
			return -1;
		memcpy(to + used, piece ? piece : word, len);
		used += len;
	}
	to[used++] = '\'';
	to[used] = '\0';
	return 0;
}

static void add_arg(struct far_command *c, const char *word)
{
	/* FAR_ARGV_MAX has room for all possible options. */
	if (c->argc < FAR_ARGV_MAX - 1)
		c->argv[c->argc++] = (char *)word;
	c->argv[c->argc] = NULL;
}

enum { RSH_WORDS_MAX = 32 };

/* Splits --rsh at blanks. */
static int add_rsh_words(struct far_command *c, const char *rsh)
{
	char *save = NULL;
	unsigned words = 0;

	if ((size_t)snprintf(c->words, sizeof c->words, "%s", rsh) >= sizeof c->words)
		return fail_as(OUT_USAGE, "--rsh is too long");
	for (char *w = strtok_r(c->words, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		if (++words > RSH_WORDS_MAX)
			return fail_as(OUT_USAGE, "--rsh has more than %d words", RSH_WORDS_MAX);
		add_arg(c, w);
	}
	return words ? 0 : fail_as(OUT_USAGE, "--rsh is empty");
}

/* Overrides settings of ssh_config(5) that would add a terminal, a command or forwardings. */
static void add_ssh_args(struct far_command *c, const struct options *o)
{
	static const char *const fixed[] = {
		"-x",
		"-T",
		"-oClearAllForwardings=yes",
		"-oPermitLocalCommand=no",
		"-oRemoteCommand=none",
		"-oRequestTTY=no",
	};

	add_arg(c, o->remote.ssh);
	for (unsigned i = 0; i < sizeof fixed / sizeof *fixed; i++)
		add_arg(c, fixed[i]);
	if (o->network.family)
		add_arg(c, o->network.family == 4 ? "-4" : "-6");
	if (o->output.quiet)
		add_arg(c, "-q");
}

int far_command(const struct options *o, const char *host, const char *verb,
		struct far_command *out)
{
	size_t used;

	out->argc = 0;
	if (!o->remote.rsh)
		add_ssh_args(out, o);
	else if (add_rsh_words(out, o->remote.rsh))
		return -1;
	for (unsigned i = 0; i < o->remote.ssh_count; i++)
		add_arg(out, o->remote.ssh_args[i]);
	if (!o->remote.rsh)
		add_arg(out, "--");
	add_arg(out, host);
	if (shell_quote(o->remote.rdcp_path, out->remote, sizeof out->remote - 32))
		return fail_as(OUT_USAGE,
			       "--rdcp-path %s: too long, or an invalid user name after ~",
			       o->remote.rdcp_path);
	if (o->remote.rsh) {
		/* The program of --rsh need not start a shell (docker exec), so pass separate
		 * words. */
		add_arg(out, out->remote);
		add_arg(out, verb);
		return 0;
	}
	used = strlen(out->remote);
	snprintf(out->remote + used, sizeof out->remote - used, " %s", verb);
	add_arg(out, out->remote);
	return 0;
}

int far_start(const struct options *o, const char *host, const char *verb, struct child *out)
{
	struct far_command c;
	char what[sizeof out->what];
	struct child_opts lo = {
		.what = what,
		.pipe_in = true,
		.pipe_out = true,
		.ignore_sigint = true,
	};

	if (far_command(o, host, verb, &c))
		return -1;
	/* Name the program itself, which --rsh or -S may have set. */
	snprintf(what, sizeof what, "%.60s to %.180s", c.argv[0], host);
	return child_exec(c.argv, &lo, out);
}
