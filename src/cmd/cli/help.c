/* SPDX-License-Identifier: Apache-2.0 */
/* --help, --version and --list-options, written from the table. */
#include "cmd/cli/options.h"

#include <string.h>
#include "lane/verbs/verbs_connect.h"

enum { COLUMNS = 80, HELP_AT = 27 };

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0"
#endif

struct manual {
	enum program program;
	const char *name;
	const char *synopsis[3];
	const char *purpose;
	const char *examples[3][2];
};

static const struct manual manuals[] = {
	{RDCP,
	 "rdcp",
	 {"rdcp [options] SRC... DST", NULL},
	 "Copy files and trees within a host or between hosts, over RDMA where both ends\n"
	 "have it and over TCP otherwise. SRC and DST are PATH, HOST:PATH or\n"
	 "USER@HOST:PATH; - is stdin or stdout. The far end is started over ssh.",
	 {{"rdcp model.bin storage2:/scratch/", "push a file"},
	  {"rdcp -a 'storage2:/scratch/run7' .", "pull a tree; run again: go on"},
	  {"rdcp -a --delete a1:/data/ a2:/data", "make a2's the same as a1's"}}},
	{RDSEND,
	 "rdsend",
	 {"rdsend [options] HOST PORT KEY [FILE]",
	  "rdsend [options] HOST PORT KEY -- COMMAND [ARG]...", NULL},
	 "Send stdin, FILE or the output of COMMAND to the rdrecv that listens at HOST\n"
	 "and PORT with the same KEY. KEY as - means the environment's RD_KEY.",
	 {{"rdsend host2 7000 - image.raw", "a file, key in RD_KEY"},
	  {"rdsend --key-file k host2 7000 -- zfs send a@1", "a command; its failure is ours"},
	  {"tar c . | rdsend host2 7000 -", "a pipe"}}},
	{RDRECV,
	 "rdrecv",
	 {"rdrecv [options] PORT KEY [FILE]", "rdrecv [options] PORT KEY -- COMMAND [ARG]...",
	  NULL},
	 "Wait for the rdsend that has the same KEY and write what it sends to stdout,\n"
	 "FILE or the input of COMMAND. KEY as - means the environment's RD_KEY.",
	 {{"rdrecv 7000 - image.raw", "to a file, key in RD_KEY"},
	  {"rdrecv --key-file k 7000 -- zfs recv b", "a command; its failure is ours"},
	  {"rdrecv -v 0 - | tar x", "any free port, told on stderr"}}},
	{RDBENCH,
	 "rdbench",
	 {"rdbench [options] [HOST]", NULL},
	 "Measure how fast data goes from this host to HOST (within this host without\n"
	 "one): memory to memory, each disk alone, the network alone, and from disk to\n"
	 "disk, with different settings, and name the best one. HOST is as for ssh.",
	 {{"rdbench storage2", "the network"},
	  {"rdbench --source=/data --target=/scratch h2", "disks too"},
	  {"rdbench --plot=link.svg storage2", "and a picture"}}},
	{RDCHECK,
	 "rdcheck",
	 {"rdcheck [options] [HOST]", NULL},
	 "Tell whether this host, and the path to HOST, are fit for RDMA, and what to do\n"
	 "about each thing that is not. HOST is as for ssh; rdcp must be there.",
	 {{"rdcheck", "this host"},
	  {"rdcheck storage2", "the path to another host too"},
	  {"rdcheck --json storage2 | jq .", "for scripts"}}},
};

static const char *const group_titles[] = {
	[GROUP_COPY] = "What is copied, and how",
	[GROUP_MEASURE] = "What is measured",
	[GROUP_KEEP] = "What is kept of each file (-a takes the usual ones together)",
	[GROUP_CHOOSE] = "Which files of a tree",
	[GROUP_UPDATE] = "What is there already",
	[GROUP_START] = "Starting the far end",
	[GROUP_KEY] = "Keys",
	[GROUP_LANES] =
		"How data moves (where two ends are told different values, the smaller counts)",
	[GROUP_OUTPUT] = "What is printed",
};

static const struct manual *manual_of(enum program program)
{
	for (unsigned i = 0; i < sizeof manuals / sizeof *manuals; i++) {
		if (manuals[i].program == program)
			return &manuals[i];
	}
	return &manuals[0];
}

const char *program_name(enum program program)
{
	return manual_of(program)->name;
}

/* Words of text from column `from' on, broken before COLUMNS. */
static void print_wrapped(FILE *to, const char *text, int from)
{
	int column = from;

	while (*text) {
		int len = (int)strcspn(text, " ");

		if (column > from && column + 1 + len >= COLUMNS) {
			fprintf(to, "\n%*s", from, "");
			column = from;
		}
		if (column > from)
			column += fprintf(to, " ");
		column += fprintf(to, "%.*s", len, text);
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', to);
}

/* "-v, --verbose", "    --lanes N", "    --progress[=S]" */
static void row_left(const struct option_row *row, char *to, size_t size)
{
	char arg[32] = "";
	size_t used;

	if (row->arg && row->arg[0] == '[')
		snprintf(arg, sizeof arg, "[=%s", row->arg + 1);
	else if (row->arg)
		snprintf(arg, sizeof arg, "%c%s", row->name ? '=' : ' ', row->arg);
	if (row->letter)
		snprintf(to, size, "  -%c%s", row->letter, row->name ? ", " : "");
	else
		snprintf(to, size, "      ");
	used = strlen(to);
	snprintf(to + used, size - used, "%s%s%s", row->name ? "--" : "",
		 row->name ? row->name : "", arg);
}

static void print_row(FILE *to, const struct option_row *row)
{
	char left[64];
	int len;

	row_left(row, left, sizeof left);
	len = fprintf(to, "%s", left);
	if (len > HELP_AT - 2) {
		fputc('\n', to);
		len = 0;
	}
	fprintf(to, "%*s", HELP_AT - len, "");
	print_wrapped(to, row->help, HELP_AT);
}

static void print_group(FILE *to, enum program program, enum option_group group)
{
	bool first = true;

	for (unsigned i = 0; i < option_row_count; i++) {
		const struct option_row *row = &option_rows[i];

		if (row->group != group || !(row->programs & program) || !row->help)
			continue;
		if (first) {
			fputc('\n', to);
			print_wrapped(to, group_titles[group], 0);
		}
		first = false;
		print_row(to, row);
	}
}

void print_synopsis(FILE *to, enum program program)
{
	const struct manual *m = manual_of(program);

	for (unsigned i = 0; m->synopsis[i]; i++)
		fprintf(to, "%s %s\n", i ? "      " : "usage:", m->synopsis[i]);
}

void print_help(FILE *to, enum program program)
{
	const struct manual *m = manual_of(program);

	print_synopsis(to, program);
	fprintf(to, "\n%s\n\nExamples\n", m->purpose);
	for (unsigned i = 0; i < 3; i++)
		fprintf(to, "  %-46s %s\n", m->examples[i][0], m->examples[i][1]);
	for (enum option_group g = 0; g < GROUP_END; g++)
		print_group(to, program, g);
	fprintf(to, "\nSizes take k, M, G, T (binary). Exit codes, promises and ports: man %s.\n",
		m->name);
}

void print_version(FILE *to, enum program program)
{
	fprintf(to, "%s (sluice) %s\nprotocol %d\ntransports: %stcp%s\n", program_name(program),
		SLUICE_VERSION, PROTOCOL_VERSION, verbs_built() ? "rdma " : "",
		program == RDCP ? " ssh" : "");
}

/* One option a line, its names, a tab, its argument: for tests/lint/help and completion. */
void print_options(FILE *to, enum program program)
{
	for (unsigned i = 0; i < option_row_count; i++) {
		const struct option_row *row = &option_rows[i];

		if (!(row->programs & program) || !row->help)
			continue;
		if (row->letter)
			fprintf(to, "-%c%s", row->letter, row->name ? " " : "");
		if (row->name)
			fprintf(to, "--%s", row->name);
		fprintf(to, "\t%s\n", row->arg ? row->arg : "");
	}
}
