/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"
#include "cmd/cli/amount.h"
#include "cmd/cli/operand.h"

/* What getopt_long() returns for long options: ROW or REFUSED plus the index in its table. */
enum { ROW = 1000, REFUSED = 2000, LONG_MAX_COUNT = 512, SHORT_MAX = 256 };

enum { TIMEOUT_MS = 15000, CONNECT_TIMEOUT_MS = 10000, MEASURE_MS = 1000 };
enum { NO_MEMORY = -2 };

static void set_defaults(struct options *o, enum program program)
{
	memset(o, 0, sizeof *o);
	o->program = program;
	o->speed.memory = UINT64_MAX;
	o->network.address = "";
	o->network.timeout_ms = TIMEOUT_MS;
	o->network.connect_timeout_ms = CONNECT_TIMEOUT_MS;
	o->key.fd = -1;
	o->wait_ms = -1;
	o->measure.ms = MEASURE_MS;
	o->network.want = program == RDCPD ? TRANSPORT_NOT_GIVEN : TRANSPORT_AUTO;
	o->serve.port = program == RDCPD ? PORT_NOT_GIVEN : DAEMON_PORT;
	o->remote.ssh = "ssh";
	o->remote.rdcp_path = "rdcp";
	o->rules = RULES_PLAIN;
}

/* "--lanes", or "-l" for an option without a long name. */
static const char *row_name(char letter, const char *name, char to[static 64])
{
	if (name)
		snprintf(to, 64, "--%s", name);
	else
		snprintf(to, 64, "-%c", letter);
	return to;
}

static int set_transport(struct options *o, const char *arg)
{
	enum transport want;

	if (parse_transport(arg, &want) || (want == TRANSPORT_SSH && o->program != RDCP))
		return -1;
	o->network.want = want;
	return 0;
}

static int parse_keyword(const char *const words[], unsigned count, const char *arg, unsigned *to)
{
	for (*to = 0; *to < count; ++*to) {
		if (strcmp(arg, words[*to]) == 0)
			return 0;
	}
	return -1;
}

static int set_rdma_op(struct options *o, const char *arg)
{
	static const char *const words[] = {"auto", "send", "write-imm", "write-send"};

	return parse_keyword(words, RDMA_OP_WRITE_SEND + 1, arg, &o->speed.rdma_op);
}

static int set_encrypt(struct options *o, const char *arg)
{
	static const char *const words[] = {"auto", "on", "off"};

	return parse_keyword(words, ENCRYPT_WISHES, arg, &o->network.encrypt);
}

static int set_compress_level(struct options *o, const char *arg)
{
	uint64_t level;

	if (parse_number(arg, 1, COMPRESS_LEVEL_MAX, &level))
		return -1;
	o->network.compress = (unsigned)level << 2 | COMPRESS_ALWAYS;
	return 0;
}

/* Keeps the level that an earlier option gave. */
static int set_compress_mode(struct options *o, enum compress_mode mode)
{
	o->network.compress = make_compress_wish((o->network.compress & ~3u) | mode);
	return 0;
}

/* Without arg, -z only adds to what a more exact option has said. */
static int set_compress(struct options *o, const char *arg)
{
	if (!arg)
		return o->network.compress ? 0 : set_compress_mode(o, COMPRESS_AUTO);
	if (strcmp(arg, "auto") == 0)
		return set_compress_mode(o, COMPRESS_AUTO);
	if (strcmp(arg, "zstd") == 0)
		return set_compress_mode(o, COMPRESS_ALWAYS);
	return set_compress_level(o, arg);
}

static int set_compress_choice(struct options *o, const char *arg)
{
	if (strcmp(arg, "none") == 0)
		return set_compress_mode(o, COMPRESS_OFF);
	return strcmp(arg, "zstd") == 0 ? set_compress_mode(o, COMPRESS_ALWAYS) : -1;
}

static int set_direct(struct options *o, const char *arg)
{
	static const char *const words[] = {"auto", "on", "off"};

	return parse_keyword(words, DIRECTS, arg, &o->speed.direct);
}

static int set_block(const char *arg, uint64_t *out)
{
	uint64_t v;

	if (parse_size(arg, &v) || v < LANE_BLOCK_MIN || v > LANE_BLOCK_MAX || (v & (v - 1)))
		return -1;
	*out = v;
	return 0;
}

static int set_progress(struct options *o, const char *arg)
{
	uint64_t seconds = 0;

	if (arg && parse_number(arg, 1, 24 * 60 * 60, &seconds))
		return -1;
	o->output.progress = true;
	o->output.progress_s = (unsigned)seconds;
	return 0;
}

static int set_kbits(const char *arg, uint64_t *out)
{
	uint64_t v;

	if (parse_number(arg, 1, UINT64_MAX / 1000, &v))
		return -1;
	*out = v * 1000 / 8;
	return 0;
}

/* ssh_args[] only borrows its words, so the words "-X" are static, one for each letter. */
static int add_ssh_option(struct options *o, char letter, const char *arg)
{
	static char flags[128][3];
	char *flag = flags[(unsigned char)letter & 127];

	if (o->remote.ssh_count + 2 > SSH_ARGS_MAX)
		return -1;
	flag[0] = '-';
	flag[1] = letter;
	o->remote.ssh_args[o->remote.ssh_count++] = flag;
	o->remote.ssh_args[o->remote.ssh_count++] = arg;
	return 0;
}

static int set_number(unsigned least, unsigned most, const char *arg, void *at, bool descriptor)
{
	uint64_t v;

	if (parse_number(arg, least, most, &v))
		return -1;
	if (descriptor)
		*(int *)at = (int)v;
	else
		*(unsigned *)at = (unsigned)v;
	return 0;
}

static int set_action(struct options *o, enum action action)
{
	/* --help takes precedence over all other options. */
	if (o->action != ACTION_HELP)
		o->action = action;
	return 0;
}

static int set_archive(struct options *o)
{
	o->archive = o->archive_recursive = true;
	o->rules.perms = o->rules.times = o->rules.owner = o->rules.group = o->rules.devices = true;
	return 0;
}

/* As in scp: access times too. */
static int set_preserve(struct options *o)
{
	o->rules.perms = o->rules.times = o->rules.atimes = true;
	return 0;
}

static int set_xattrs_option(struct options *o, const char *arg)
{
	o->rules.xattrs = true;
	if (!arg)
		return 0;
	o->rules.xattrs_all = true;
	return strcmp(arg, "all") == 0 ? 0 : -1;
}

static int set_digest(struct options *o, const char *arg)
{
	static const char *const names[CONTENT_DIGESTS] = {
		[CONTENT_NONE] = "none", [CONTENT_XXH128] = "xxh128",   [CONTENT_SHA256] = "sha256",
		[CONTENT_MD5] = "md5",   [CONTENT_ADLER32] = "adler32",
	};

	o->rules.digest = CONTENT_XXH128;
	if (!arg)
		return 0;
	for (unsigned i = CONTENT_NONE + 1; i < CONTENT_DIGESTS; i++) {
		if (strcmp(arg, names[i]) == 0) {
			o->rules.digest = i;
			return 0;
		}
	}
	return -1;
}

/* Returns 0, -1 if arg is empty, or NO_MEMORY. */
static int add_pattern_option(struct options *o, unsigned rule_flags, const char *arg)
{
	if (ARRAY_ROOM(o->patterns, o->pattern_count, o->pattern_room, 1))
		return NO_MEMORY;
	o->patterns[o->pattern_count++] = (struct option_pattern){
		.include = rule_flags & RULE_INCLUDE,
		.from_file = rule_flags & RULE_FROM_FILE,
		.text = arg,
	};
	return *arg ? 0 : -1;
}

static int add_ssh_port(struct options *o, const char *arg)
{
	uint64_t port;

	return parse_number(arg, 1, 65535, &port) || add_ssh_option(o, 'p', arg) ? -1 : 0;
}

static int add_to_list(struct option_list *list, const char *arg)
{
	if (list->count == OPTION_LIST_MAX)
		return -1;
	list->of[list->count++] = arg;
	return *arg ? 0 : -1;
}

static int set_row(struct options *o, const struct option_row *row, const char *arg)
{
	void *at = (char *)o + row->at;

	switch (row->kind) {
	case KIND_FLAG:
		*(bool *)at = true;
		return 0;
	case KIND_MORE:
		++*(unsigned *)at;
		return 0;
	case KIND_VALUE:
		*(unsigned *)at = row->number;
		return 0;
	case KIND_TEXT:
		*(const char **)at = arg;
		return *arg ? 0 : -1;
	case KIND_COUNT:
	case KIND_PORT:
		return set_number(row->kind == KIND_COUNT, row->number, arg, at, false);
	case KIND_DESCRIPTOR:
		return set_number(0, 1 << 20, arg, at, true);
	case KIND_SIZE:
		return parse_size(arg, at);
	case KIND_BLOCK:
		return set_block(arg, at);
	case KIND_RATE:
		return parse_rate(arg, at);
	case KIND_KBITS:
		return set_kbits(arg, at);
	case KIND_SECONDS:
		return parse_seconds(arg, at);
	case KIND_PORTS:
		return parse_ports(arg, &o->network.port_lo, &o->network.port_hi);
	case KIND_TOS:
		return parse_tos(arg, at);
	case KIND_NUMBER:
		return parse_number(arg, 0, UINT64_MAX, at);
	case KIND_CLEAR:
		*(bool *)at = false;
		/* fall through */
	case KIND_ALWAYS:
		return 0;
	case KIND_FLAT:
		o->rules.recursive = o->archive_recursive = false;
		return 0;
	case KIND_ARCHIVE:
		return set_archive(o);
	case KIND_PRESERVE:
		return set_preserve(o);
	case KIND_XATTRS:
		return set_xattrs_option(o, arg);
	case KIND_DIGEST:
		return set_digest(o, arg);
	case KIND_RULE:
		return add_pattern_option(o, row->number, arg);
	case KIND_TRANSPORT:
		return set_transport(o, arg);
	case KIND_RDMA_OP:
		return set_rdma_op(o, arg);
	case KIND_ENCRYPT:
		return set_encrypt(o, arg);
	case KIND_COMPRESS:
		return set_compress(o, arg);
	case KIND_COMPRESS_CHOICE:
		return set_compress_choice(o, arg);
	case KIND_DIRECT:
		return set_direct(o, arg);
	case KIND_PROGRESS:
		return set_progress(o, arg);
	case KIND_SSH:
		return add_ssh_option(o, row->letter, arg);
	case KIND_SSH_PORT:
		return add_ssh_port(o, arg);
	case KIND_LIST:
		return add_to_list(at, arg);
	case KIND_ACTION:
		return set_action(o, (enum action)row->number);
	}
	return -1;
}

static int use_row(struct options *o, const struct option_row *row, const char *arg)
{
	const char *value;
	char name[64], range[32] = "";
	int rc = set_row(o, row, arg);

	if (rc == 0)
		return 0;
	if (rc == NO_MEMORY)
		return fail_as(OUT_MEMORY, "store the value of %s: %m",
			       row_name(row->letter, row->name, name));
	/* "[S]" is printed as S. */
	value = row->arg ? row->arg + (row->arg[0] == '[') : "";
	if (row->kind == KIND_COUNT)
		snprintf(range, sizeof range, " from 1 to %d", (int)row->number);
	return fail_as(OUT_USAGE, "%s %s: invalid value, expected %.*s%s%s%s",
		       row_name(row->letter, row->name, name), arg ? arg : "",
		       (int)strcspn(value, "]"), value, range, row->help ? ": " : "",
		       row->help ? row->help : "");
}

static int refuse_option(const struct refused_row *row, bool by_letter)
{
	char name[64];

	return fail_as(OUT_USAGE, "%s is not supported: %s",
		       row_name(row->letter, by_letter ? NULL : row->name, name), row->why);
}

/* ---- getopt's arrays ------------------------------------------------------------------- */

struct getopt_arrays {
	char letters[SHORT_MAX];
	struct option longs[LONG_MAX_COUNT];
};

static void add_long_option(struct option **at, const char *name, int has_arg, int value)
{
	*(*at)++ = (struct option){.name = name, .has_arg = has_arg, .val = value};
}

static int getopt_arg_kind(const struct option_row *row)
{
	if (!row->arg)
		return no_argument;
	return row->arg[0] == '[' ? optional_argument : required_argument;
}

static void make_getopt_arrays(struct getopt_arrays *a, enum program program)
{
	struct option *at = a->longs;
	char *letter = a->letters;

	/* '-': getopt returns operands as option 1, which shows what precedes "--".
	 * ':': a missing argument returns ':'. */
	*letter++ = '-';
	*letter++ = ':';
	for (unsigned i = 0; i < option_row_count; i++) {
		const struct option_row *row = &option_rows[i];

		if (!(row->programs & program))
			continue;
		if (row->name)
			add_long_option(&at, row->name, getopt_arg_kind(row), (int)(ROW + i));
		if (row->letter)
			*letter++ = row->letter;
		if (row->letter && getopt_arg_kind(row) == required_argument)
			*letter++ = ':';
	}
	for (unsigned i = 0; i < refused_row_count; i++) {
		const struct refused_row *row = &refused_rows[i];

		if (!(row->programs & program))
			continue;
		if (row->name)
			add_long_option(&at, row->name, optional_argument, (int)(REFUSED + i));
		if (row->letter)
			*letter++ = row->letter;
	}
	*letter = '\0';
	*at = (struct option){0};
}

static int take_short_option(struct options *o, int c, const char *arg)
{
	for (unsigned i = 0; i < option_row_count; i++) {
		if (option_rows[i].letter == c && (option_rows[i].programs & o->program))
			return use_row(o, &option_rows[i], arg);
	}
	for (unsigned i = 0; i < refused_row_count; i++) {
		if (refused_rows[i].letter == c && (refused_rows[i].programs & o->program))
			return refuse_option(&refused_rows[i], true);
	}
	return fail_as(OUT_USAGE, "unknown option -%c", c);
}

/* getopt_long() returned c, '?' or ':'. */
static int report_getopt_error(int c, char **argv)
{
	const char *word = argv[optind > 0 ? optind - 1 : 0];

	if (c == ':' && optopt && optopt < ROW)
		return fail_as(OUT_USAGE, "-%c needs an argument", optopt);
	if (c == ':')
		return fail_as(OUT_USAGE, "%s needs an argument", word);
	if (optopt >= ROW)
		return fail_as(OUT_USAGE, "%s: the option takes no argument", word);
	if (optopt && isprint(optopt))
		return fail_as(OUT_USAGE, "unknown option -%c", optopt);
	return fail_as(OUT_USAGE, "unknown option %s", word);
}

/* ---- operands ------------------------------------------------------------------------ */

static void operand_counts(const struct options *o, unsigned *least, unsigned *most)
{
	unsigned key = o->key.file || o->key.fd >= 0 ? 0 : 1;

	if (!(o->program & PROGRAMS)) {
		*least = 0;
		*most = o->program == RDCPD ? 0 : 1;
		return;
	}
	*least = o->program == RDCP ? 2 : o->program == RDSEND ? 2 + key : 1 + key;
	*most = o->program == RDCP ? (unsigned)-1 : *least + 1;
}

static int check_operands(struct options *o)
{
	const char *first = o->operand_count ? o->operands[0] : "host";
	unsigned least, most;

	operand_counts(o, &least, &most);
	/* An empty HOST, such as a script's unset variable, must not mean this host. */
	if ((o->program & (RDBENCH | RDCHECK)) &&
	    (!*first || *first == '-' || strlen(first) >= HOST_MAX))
		return fail_as(OUT_USAGE, "\"%.60s\" is not a host name", first);
	if (o->program == RDCP && o->operand_count == 1 && operand_is_daemon(first))
		return 0; /* a listing */
	if (o->operand_count < least && o->program == RDCP)
		return fail_as(OUT_USAGE,
			       o->operand_count ? "DST is missing after %s"
						: "SRC and DST are missing",
			       o->operand_count ? o->operands[0] : "");
	if (o->operand_count < least)
		return fail_as(OUT_USAGE, "%s is missing",
			       o->operand_count == 0 && o->program == RDSEND ? "HOST"
			       : o->operand_count == least - 2 + (o->key.file || o->key.fd >= 0)
				       ? "PORT"
				       : "KEY");
	if (o->operand_count > most)
		return fail_as(OUT_USAGE, "unexpected operand %s", o->operands[most]);
	if (o->command && o->operand_count > least)
		return fail_as(OUT_USAGE, "FILE %s and a command after -- cannot be combined",
			       o->operands[least]);
	return 0;
}

/* Words after "--" are operands until enough operands are there. Then, or after another "--", they
 * are the command. */
static int take_remaining_operands(struct options *o, char **rest, bool dashes)
{
	bool takes_command = o->program & (RDSEND | RDRECV);
	unsigned least, most;

	operand_counts(o, &least, &most);
	if (takes_command && dashes && o->operand_count >= least) {
		o->command = rest;
	} else {
		for (; *rest; rest++) {
			if (takes_command && o->operand_count >= least &&
			    strcmp(*rest, "--") == 0) {
				o->command = rest + 1;
				break;
			}
			o->operands[o->operand_count++] = *rest;
		}
	}
	if (o->command && !*o->command)
		return fail_as(OUT_USAGE, "no command after --");
	return 0;
}

static int take_options(struct options *o, int argc, char **argv)
{
	struct getopt_arrays a;
	int c;

	make_getopt_arrays(&a, o->program);
	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, a.letters, a.longs, NULL)) != -1) {
		int rc;

		if (c == 1) {
			o->operands[o->operand_count++] = optarg;
			continue;
		}
		if (c == '?' || c == ':')
			rc = report_getopt_error(c, argv);
		else if (c >= REFUSED)
			rc = refuse_option(&refused_rows[c - REFUSED], false);
		else if (c >= ROW)
			rc = use_row(o, &option_rows[c - ROW], optarg);
		else
			rc = take_short_option(o, c, optarg);
		if (rc)
			return -1;
	}
	return 0;
}

int options_parse(struct options *o, enum program program, int argc, char **argv)
{
	bool dashes;

	set_defaults(o, program);
	o->operands = calloc((size_t)argc + 1, sizeof *o->operands);
	if (!o->operands)
		return fail_as(OUT_MEMORY, "read the command line: %m");
	/* -h alone means --help, as in most programs; with other words it means --human-readable.
	 */
	if (argc == 2 && strcmp(argv[1], "-h") == 0)
		o->action = ACTION_HELP;
	else if (take_options(o, argc, argv))
		goto bad;
	if (o->key.make && o->action == ACTION_RUN)
		o->action = ACTION_MAKE_KEY;
	if (o->action != ACTION_RUN)
		return 0;
	options_settle(o);
	dashes = optind > 0 && strcmp(argv[optind - 1], "--") == 0;
	if (take_remaining_operands(o, argv + optind, dashes) || check_operands(o) ||
	    options_check_conflicts(o))
		goto bad;
	return 0;
bad:
	options_free(o);
	return -1;
}

void options_free(struct options *o)
{
	free(o->operands);
	o->operands = NULL;
	free(o->patterns);
	o->patterns = NULL;
}
