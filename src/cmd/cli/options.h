/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_OPTIONS_H
#define CMD_CLI_OPTIONS_H

/*
 * The options of all programs: one table says their names, arguments, help and what they set
 * (option_table.c); the command line is read by it and --help is written from it.
 *
 * Strings point into argv.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "copy/rules/rules.h"
#include "protocol/message.h"

/* PROGRAMS: those that move a user's data. */
enum program {
	RDCP = 1,
	RDSEND = 2,
	RDRECV = 4,
	PROGRAMS = RDCP | RDSEND | RDRECV,
	RDBENCH = 8,
	RDCHECK = 16,
	STARTERS = RDCP | RDBENCH | RDCHECK, /* they start a far end */
	EVERY = PROGRAMS | RDBENCH | RDCHECK,
};

enum action {
	ACTION_RUN,
	ACTION_HELP,
	ACTION_VERSION,
	ACTION_LIST, /* --list-options: the table, for tests and completion */
	ACTION_END, /* rdcp --end: what a conductor starts over ssh */
	ACTION_ENDS, /* rdcp --ends: one after the other */
	ACTION_LANE, /* rdcp --lane, --lane-listen: a lane over ssh */
	ACTION_LANE_LISTEN,
	ACTION_SURVEY, /* rdcp --survey: what rdcheck starts over ssh */
	ACTION_MAKE_KEY,
};

enum { SSH_ARGS_MAX = 128, LANES_MOST = 64 };

/* One --include or --exclude, or a file of them ("-": stdin). */
struct option_pattern {
	bool include, from_file;
	const char *text;
};

struct options {
	enum program program;
	enum action action;

	unsigned verbose;
	bool quiet, json, progress;
	unsigned progress_s; /* 0: live where stderr is a terminal */
	unsigned family; /* 4, 6, or 0 for both */

	unsigned want; /* enum transport */
	unsigned lanes, depth; /* 0: default */
	uint64_t block_size; /* 0: default */
	uint64_t memory; /* UINT64_MAX: no bound */
	uint64_t bwlimit; /* bytes a second, 0: none */
	const char *address; /* "" */
	unsigned port_lo, port_hi;
	unsigned rdma_op; /* enum rdma_op */
	unsigned rails; /* 0: no bound */
	unsigned direct; /* enum direct */
	int timeout_ms, connect_timeout_ms;

	const char *key_file, *make_key;
	int key_fd; /* -1 */
	uint64_t size; /* rdsend: of the stream, for the ETA; 0: unknown */
	int wait_ms; /* rdrecv: -1: for ever */
	/* rdbench: disks to measure, and the picture; NULL: none. */
	const char *measure_source, *measure_target, *plot;
	int measure_ms; /* of each point */

	struct rules rules; /* as given; options_rules() has what follows from it */
	bool archive; /* -a: recursive, unless names come with --files-from */
	bool ignore_times, through_here, itemize, stats, from0;
	const char *files_from, *failed, *log_file; /* NULL */
	struct option_pattern *patterns; /* owned: --include, --exclude and lists of them, in order
					  */
	unsigned pattern_count;
	size_t pattern_room;

	const char *rsh; /* NULL: ssh */
	const char *ssh, *rdcp_path;
	const char *ssh_args[SSH_ARGS_MAX];
	unsigned ssh_count;

	char **operands; /* owned, NULL at the end */
	unsigned operand_count;
	char **command; /* what follows --, or NULL */
};

/* Is it known of each file what became of it, and told somewhere? */
static inline bool options_want_events(const struct options *o)
{
	return o->itemize || o->json || o->failed || o->log_file || o->rules.digest != CONTENT_NONE;
}

/* The rules that both ends are told. */
struct rules options_rules(const struct options *o);

/* 0, or -1 with a failure (OUT_USAGE). */
int options_parse(struct options *o, enum program program, int argc, char **argv);
void options_free(struct options *o);
/* Parts of options_parse(): set what the options given imply; refuse those that contradict each
 * other (OUT_USAGE). */
void options_settle(struct options *o);
int options_check_conflicts(const struct options *o);

/* The answers to --help, --version and --list-options, and what follows a mistake. */
void print_help(FILE *to, enum program program);
void print_synopsis(FILE *to, enum program program);
void print_version(FILE *to, enum program program);
void print_options(FILE *to, enum program program);
const char *program_name(enum program program);

/* ---- the table ---------------------------------------------------------------------- */

enum option_kind {
	KIND_FLAG, /* bool at */
	KIND_MORE, /* unsigned at, one more each time */
	KIND_VALUE, /* unsigned at = number */
	KIND_TEXT, /* const char * at */
	KIND_COUNT, /* unsigned at, from 1 to number */
	KIND_DESCRIPTOR, /* int at */
	KIND_SIZE, /* uint64_t at */
	KIND_BLOCK, /* uint64_t at: a power of two from 4k to 4M */
	KIND_RATE, /* uint64_t at */
	KIND_KBITS, /* uint64_t at */
	KIND_SECONDS, /* int at, in ms */
	KIND_PORTS, /* port_lo, port_hi */
	KIND_NUMBER, /* uint64_t at */
	KIND_CLEAR, /* bool at = false */
	KIND_ALWAYS, /* sets nothing: it always holds */
	KIND_FLAT, /* --no-recursive */
	KIND_ARCHIVE,
	KIND_PRESERVE,
	KIND_XATTRS,
	KIND_DIGEST,
	KIND_RULE, /* number: RULE_INCLUDE, RULE_FROM_FILE */
	KIND_TRANSPORT,
	KIND_RDMA_OP,
	KIND_DIRECT,
	KIND_PROGRESS,
	KIND_SSH, /* handed to ssh as -letter */
	KIND_SSH_PORT, /* handed to ssh as -p */
	KIND_ACTION, /* enum action = number */
};

enum { RULE_INCLUDE = 1, RULE_FROM_FILE = 2 };

enum option_group {
	GROUP_COPY,
	GROUP_WHERE,
	GROUP_METADATA,
	GROUP_EXISTING,
	GROUP_DELETE,
	GROUP_WRITE,
	GROUP_MEASURE,
	GROUP_KEY,
	GROUP_OUTPUT,
	GROUP_REMOTE,
	GROUP_NETWORK,
	GROUP_SPEED,
	GROUP_END
};

struct option_row {
	char letter; /* 0: none */
	const char *name; /* NULL: none */
	const char *arg; /* NULL: takes none; "[S]": optional */
	unsigned programs;
	enum option_group group;
	enum option_kind kind;
	size_t at; /* offset in struct options */
	unsigned number;
	const char *help; /* NULL: hidden */
};
extern const struct option_row option_rows[];
extern const unsigned option_row_count;

/* What scp, rsync or nc have and we do not, and what to do instead. */
struct refused_row {
	char letter;
	const char *name;
	unsigned programs;
	const char *why; /* "%s" is not in it: said after "-r is not supported: " */
};
extern const struct refused_row refused_rows[];
extern const unsigned refused_row_count;

#endif
