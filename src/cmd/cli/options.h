/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_OPTIONS_H
#define CMD_CLI_OPTIONS_H

/*
 * The options of all programs. One table (option_table.c) has their names, arguments, help and
 * effects. The command line is parsed by it, and --help is generated from it.
 *
 * Strings point into argv.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "copy/rules/rules.h"
#include "protocol/message.h"

/* PROGRAMS: those that move the user's data. */
enum program {
	RDCP = 1,
	RDSEND = 2,
	RDRECV = 4,
	PROGRAMS = RDCP | RDSEND | RDRECV,
	RDBENCH = 8,
	RDCHECK = 16,
	RDCPD = 32,
	STARTERS = RDCP | RDBENCH | RDCHECK, /* those that start a far end */
	CALLERS = PROGRAMS | RDBENCH | RDCHECK, /* those that a user waits for */
	EVERY = CALLERS | RDCPD,
};

enum action {
	ACTION_RUN,
	ACTION_HELP,
	ACTION_VERSION,
	ACTION_LIST, /* --list-options: the table, for tests and shell completion */
	ACTION_END, /* rdcp --end: a conductor starts it over ssh */
	ACTION_ENDS, /* rdcp --ends: one end after the other */
	ACTION_LANE, /* rdcp --lane, --lane-listen: a lane over ssh */
	ACTION_LANE_LISTEN,
	ACTION_SURVEY, /* rdcp --survey: rdcheck starts it over ssh */
	ACTION_MAKE_KEY,
};

enum { SSH_ARGS_MAX = 128 };

/* One --include or --exclude, or a file of them ("-": stdin). */
struct option_pattern {
	bool include, from_file;
	const char *text;
};

/* What --help lists as one group, apart from the rules of a copy. */
struct output_options {
	unsigned verbose;
	bool quiet, json, progress;
	unsigned progress_s; /* 0: live, if stderr is a terminal */
	bool itemize, stats;
	const char *failed, *log_file; /* or NULL */
};
struct remote_options {
	const char *rsh; /* NULL: ssh */
	const char *ssh, *rdcp_path;
	const char *ssh_args[SSH_ARGS_MAX];
	unsigned ssh_count;
	bool through_here;
};
struct network_options {
	unsigned family; /* 4, 6, or 0 for both */
	unsigned want; /* enum transport; rdcpd: or TRANSPORT_NOT_GIVEN */
	uint64_t bwlimit; /* bytes per second; 0: unlimited */
	const char *address; /* or "" */
	unsigned port_lo, port_hi;
	unsigned tos; /* base/tos.h */
	unsigned encrypt; /* enum encrypt */
	unsigned compress; /* a wish: lane/compress.h */
	int timeout_ms, connect_timeout_ms;
};
struct speed_options {
	unsigned lanes, depth; /* 0: default */
	uint64_t block_size; /* 0: default */
	uint64_t memory; /* UINT64_MAX: unlimited */
	unsigned rdma_op; /* enum rdma_op */
	unsigned rails; /* 0: no bound */
	unsigned direct; /* enum direct */
};
/* An option that may be given several times: its values, as written. */
enum { OPTION_LIST_MAX = 64 };
struct option_list {
	const char *of[OPTION_LIST_MAX];
	unsigned count;
};
struct key_options {
	const char *file, *make;
	struct option_list files; /* rdcp: FILE or HOST=FILE */
	const char *secrets; /* rdcpd */
	int fd; /* -1: none */
};
enum {
	MODULES_MAX = OPTION_LIST_MAX,
	DAEMON_PORT = 10470 /* hdrdmacp's */,
	/* of rdcpd, whose file may give them */
	PORT_NOT_GIVEN = 1 << 16,
	TRANSPORT_NOT_GIVEN = 255
};
struct serve_options {
	struct option_list modules; /* rdcpd */
	const char *config; /* rdcpd: its configuration file, or NULL */
	bool only_checks; /* rdcpd: --check-config */
	bool log_json; /* rdcpd: of transfers */
	unsigned port; /* rdcp: of daemons; rdcpd: to listen at, or PORT_NOT_GIVEN */
};
struct measure_options { /* rdbench */
	const char *source, *target, *plot; /* disks to measure, and the plot; NULL: none */
	int ms; /* for each point */
};

struct options {
	enum program program;
	enum action action;

	struct output_options output;
	struct remote_options remote;
	struct network_options network;
	struct speed_options speed;
	struct key_options key;
	struct measure_options measure;
	struct serve_options serve;
	uint64_t size; /* rdsend: size of the stream, for the ETA; 0: unknown */
	int wait_ms; /* rdrecv; -1: without limit */

	struct rules rules; /* as given; options_rules() adds what they imply */
	bool archive; /* -a */
	bool archive_recursive; /* by -a, unless --files-from is given */
	bool ignore_times, from0;
	const char *files_from; /* or NULL */
	/* Owned: --include, --exclude and lists of them, in order. */
	struct option_pattern *patterns;
	unsigned pattern_count;
	size_t pattern_room;

	char **operands; /* owned; ends with NULL */
	unsigned operand_count;
	char **command; /* what follows --, or NULL */
};

/* Whether the results for single files are needed for any output. */
static inline bool options_want_events(const struct options *o)
{
	return o->output.itemize || o->output.json || o->output.failed || o->output.log_file ||
	       o->rules.digest != CONTENT_NONE;
}

/* The rules that both ends get. */
struct rules options_rules(const struct options *o);

/* Returns 0, or -1 with a failure (OUT_USAGE, OUT_MEMORY), after which there is nothing to free. */
int options_parse(struct options *o, enum program program, int argc, char **argv);
void options_free(struct options *o);
/* Parts of options_parse(): the first sets what the given options imply, the second rejects
 * contradictions (OUT_USAGE). */
void options_settle(struct options *o);
int options_check_conflicts(const struct options *o);

/* Output of --help, --version and --list-options, and after a usage error. */
void print_help(FILE *to, enum program program);
void print_synopsis(FILE *to, enum program program);
void print_version(FILE *to, enum program program);
void print_options(FILE *to, enum program program);
const char *program_name(enum program program);

/* ---- the table ---------------------------------------------------------------------- */

enum option_kind {
	KIND_FLAG, /* bool at */
	KIND_MORE, /* unsigned at, incremented each time */
	KIND_VALUE, /* unsigned at = number */
	KIND_TEXT, /* const char * at */
	KIND_COUNT, /* unsigned at, from 1 to number */
	KIND_PORT, /* unsigned at, from 0 to number */
	KIND_DESCRIPTOR, /* int at */
	KIND_SIZE, /* uint64_t at */
	KIND_BLOCK, /* uint64_t at: a power of two from 4k to 4M */
	KIND_RATE, /* uint64_t at */
	KIND_KBITS, /* uint64_t at */
	KIND_SECONDS, /* int at, in ms */
	KIND_PORTS, /* port_lo, port_hi */
	KIND_TOS, /* unsigned at */
	KIND_NUMBER, /* uint64_t at */
	KIND_CLEAR, /* bool at = false */
	KIND_ALWAYS, /* no effect: it is always on */
	KIND_FLAT, /* --no-recursive */
	KIND_ARCHIVE,
	KIND_PRESERVE,
	KIND_XATTRS,
	KIND_DIGEST,
	KIND_RULE, /* number: RULE_INCLUDE, RULE_FROM_FILE */
	KIND_TRANSPORT,
	KIND_RDMA_OP,
	KIND_ENCRYPT,
	KIND_COMPRESS,
	KIND_COMPRESS_CHOICE,
	KIND_DIRECT,
	KIND_PROGRESS,
	KIND_SSH, /* passed to ssh as -letter */
	KIND_SSH_PORT, /* passed to ssh as -p */
	KIND_LIST, /* one more of struct option_list at */
	KIND_ACTION, /* enum action = number */
};

enum { RULE_INCLUDE = 1, RULE_FROM_FILE = 2 };

enum option_group {
	GROUP_SERVE,
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
	const char *arg; /* NULL: no argument; "[S]": optional */
	unsigned programs;
	enum option_group group;
	enum option_kind kind;
	size_t at; /* offset in struct options */
	unsigned number;
	const char *help; /* NULL: hidden */
};
extern const struct option_row option_rows[];
extern const unsigned option_row_count;

/* Options of scp, rsync or nc that we do not support, and what to use instead. */
struct refused_row {
	char letter;
	const char *name;
	unsigned programs;
	const char *why; /* without "%s"; printed after "-r is not supported: " */
};
extern const struct refused_row refused_rows[];
extern const unsigned refused_row_count;

#endif
