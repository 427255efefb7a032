/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines: a byte that selects the program, then words, each with a NUL at its end. The
 * values of options and operands are parsed as in the programs: targets, modes, owners, ports.
 */
#include <stdint.h>
#include <string.h>
#include "cmd/cli/amount.h"
#include "cmd/cli/operand.h"
#include "cmd/cli/options.h"
#include "cmd/conductor/far_command.h"
#include "copy/attr/modes.h"
#include "copy/attr/owners.h"
#include "expect.h"

enum { WORDS_MAX = 200, INPUT_MAX = 8 << 10 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static FILE *nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	nowhere = fopen("/dev/null", "we");
	expect(nowhere);
	return 0;
}

/* Builds the command line of ssh for a host. */
static void use_host(const struct options *o, const char *host)
{
	struct far_command far;

	if (far_command(o, host, "--end", &far)) {
		expect(failed()->code == OUT_USAGE);
		return;
	}
	expect(far.argc >= 2 && far.argc < FAR_ARGV_MAX && !far.argv[far.argc]);
}

static void use_url(const char *text)
{
	struct daemon_url u, listed;
	const char *rest, *after;

	if (!operand_is_daemon(text))
		return;
	if (operand_parse_daemon(text, &u, &rest)) {
		expect_failure(OUT_USAGE, OUT_USAGE);
		expect(operand_parse_listing(text, &listed, &after) || !listed.module[0]);
		return;
	}
	expect(u.module[0] && rest >= text && rest <= text + strlen(text));
	expect(operand_parse_listing(text, &listed, &after) == 0 && after == rest);
	expect(memcmp(&u, &listed, sizeof u) == 0);
}

static void use_operand(const struct options *o, const char *text)
{
	struct operand t;
	unsigned port;
	int fd;

	use_url(text);
	if (operand_parse(text, &t) == 0) {
		expect(strlen(t.host) < sizeof t.host && t.path);
		expect(!strpbrk(t.host, " \t\n") && t.host[0] != '-');
		if (t.host[0])
			use_host(o, t.host);
	} else {
		expect(failed()->code == OUT_USAGE);
	}
	if (operand_descriptor(text, &fd) == 0)
		expect(fd >= -1);
	if (parse_port(text, &port) == 0)
		expect(port <= 65535);
}

static void use_modes(const char *text)
{
	struct modes *m;

	if (modes_parse(text, &m)) {
		expect(failed()->code == OUT_USAGE);
		return;
	}
	for (unsigned mode = 0; mode <= 07777; mode += 0111)
		expect(modes_apply(m, mode, mode & 1) <= 07777);
	modes_free(m);
}

static void use_texts(const struct options *o)
{
	char text[64];
	uid_t uid;
	gid_t gid;

	use_modes(o->rules.chmod);
	if (owners_parse(o->rules.chown, &uid, &gid))
		expect(failed()->code == OUT_USAGE);
	expect(strlen(size_text(o->speed.memory, text, sizeof text)) < 12);
	expect(strlen(time_text(o->size, text, sizeof text)) < 32);
}

static void expect_ranges(const struct options *o)
{
	expect(o->network.timeout_ms >= 1000 && o->network.connect_timeout_ms >= 0 &&
	       o->speed.lanes <= LANE_COUNT_MAX);
	expect(o->network.port_lo <= o->network.port_hi && o->network.port_hi <= 65535 &&
	       o->network.tos <= TOS_MOST);
	expect(o->speed.block_size == 0 ||
	       (o->speed.block_size >= LANE_BLOCK_MIN && o->speed.block_size <= LANE_BLOCK_MAX));
	expect(o->remote.ssh_count <= SSH_ARGS_MAX && o->rules.digest < CONTENT_DIGESTS);
	expect(!o->command || *o->command);
}

/* Checks the rules that follow from several options. */
static void expect_rules(const struct options *o)
{
	const struct rules r = options_rules(o);

	expect(!r.quick || (r.times && !r.checksum && !r.remove_source));
	expect(!r.remove_source || (r.fsync && !r.dry_run));
	expect(!r.acls || r.perms);
}

static void parse(enum program program, int argc, char **argv)
{
	struct options o;

	if (options_parse(&o, program, argc, argv)) {
		expect_failure(OUT_USAGE, OUT_USAGE);
		print_synopsis(nowhere, program);
		return;
	}
	if (o.action == ACTION_RUN) {
		expect_ranges(&o);
		expect_rules(&o);
		for (unsigned i = 0; i < o.operand_count; i++)
			use_operand(&o, o.operands[i]);
		use_texts(&o);
	}
	options_free(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum program programs[] = {RDCP, RDSEND, RDRECV, RDBENCH, RDCHECK, RDCPD};
	static char words[INPUT_MAX + 1];
	char *argv[WORDS_MAX + 2] = {(char[]){"program"}};
	int argc = 1;

	if (size < 1 || size > INPUT_MAX)
		return -1;
	memcpy(words, data + 1, size - 1);
	words[size - 1] = '\0';
	for (char *at = words; at < words + size - 1 && argc <= WORDS_MAX; at += strlen(at) + 1)
		argv[argc++] = at;
	parse(programs[data[0] % 6], argc, argv);
	return 0;
}
