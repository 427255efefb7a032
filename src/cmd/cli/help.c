/* SPDX-License-Identifier: Apache-2.0 */
/* --help, --version and --list-options, generated from the table. */
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
	 {"rdcp [options] SRC... DST", "rdcp [options] rdma://HOST/[MODULE/PATH]", NULL},
	 "Copy files and trees within a host or between hosts, over RDMA if both hosts\n"
	 "have it and over TCP otherwise. SRC and DST are PATH, HOST:PATH or\n"
	 "USER@HOST:PATH; - is stdin or stdout. rdcp starts the far end with ssh, or asks\n"
	 "the rdcpd on HOST for it: rdma://HOST/MODULE/PATH, which it lists if there is no\n"
	 "DST.",
	 {{"rdcp model.bin storage2:/scratch/", "push a file"},
	  {"rdcp -a 'storage2:/scratch/run7' .", "pull a tree; repeat to continue"},
	  {"rdcp -a --delete a1:/data/ a2:/data", "mirror a1's tree on a2"}}},
	{RDSEND,
	 "rdsend",
	 {"rdsend [options] HOST PORT KEY [FILE]",
	  "rdsend [options] HOST PORT KEY -- COMMAND [ARG]...", NULL},
	 "Send stdin, FILE or the output of COMMAND to the rdrecv that listens at PORT of\n"
	 "HOST and has the same KEY. - as KEY takes it from the environment's RD_KEY.",
	 {{"rdsend host2 7000 - image.raw", "a file; the key is in RD_KEY"},
	  {"rdsend --key-file k host2 7000 -- zfs send a@1", "a command and its exit status"},
	  {"tar c . | rdsend host2 7000 -", "a pipe"}}},
	{RDRECV,
	 "rdrecv",
	 {"rdrecv [options] PORT KEY [FILE]", "rdrecv [options] PORT KEY -- COMMAND [ARG]...",
	  NULL},
	 "Wait for an rdsend that has the same KEY, and write what it sends to stdout,\n"
	 "FILE or the input of COMMAND. - as KEY takes it from the environment's RD_KEY.",
	 {{"rdrecv 7000 - image.raw", "to a file; the key is in RD_KEY"},
	  {"rdrecv --key-file k 7000 -- zfs recv b", "a command and its exit status"},
	  {"rdrecv -v 0 - | tar x", "any free port; see stderr"}}},
	{RDCPD,
	 "rdcpd",
	 {"rdcpd [options]", "rdcpd [options] --module=NAME=DIR... --key-file=FILE", NULL},
	 "Serve directories to every rdcp that has the key, many at once, without ssh.\n"
	 "Each client is confined to the module that it names, as rdma://HOST/NAME/PATH.",
	 {{"rdcpd --make-key k", "make a key for the clients"},
	  {"rdcpd --key-file k --module data=/srv/data:rw", "serve a directory"},
	  {"rdcp --key-file k run7 rdma://host/data/", "on a client: push a file"}}},
	{RDBENCH,
	 "rdbench",
	 {"rdbench [options] [HOST]", NULL},
	 "Measure how fast data travels from this host to HOST (without HOST: within this\n"
	 "host), from memory to memory, over the network alone, on each disk alone and\n"
	 "from disk to disk. Print the best setting. HOST is as for ssh.",
	 {{"rdbench storage2", "the network"},
	  {"rdbench --source=/data --target=/scratch h2", "the disks, too"},
	  {"rdbench --plot=link.svg storage2", "and a picture"}}},
	{RDCHECK,
	 "rdcheck",
	 {"rdcheck [options] [HOST]", NULL},
	 "Check whether this host and the path to HOST are fit for RDMA, and print a\n"
	 "remedy for each problem. HOST is as for ssh; rdcp must be installed there.",
	 {{"rdcheck", "this host"},
	  {"rdcheck storage2", "the path to another host, too"},
	  {"rdcheck --json storage2 | jq .", "for scripts"}}},
};

static const char *const group_titles[] = {
	[GROUP_SERVE] = "What to serve",
	[GROUP_COPY] = "What to copy",
	[GROUP_WHERE] = "Where to copy",
	[GROUP_METADATA] = "Metadata",
	[GROUP_EXISTING] = "Existing files",
	[GROUP_DELETE] = "Deleting, moving and backups",
	[GROUP_WRITE] = "How files are written",
	[GROUP_MEASURE] = "What to measure",
	[GROUP_KEY] = "Keys",
	[GROUP_OUTPUT] = "Output",
	[GROUP_REMOTE] = "Remote hosts and ssh",
	[GROUP_NETWORK] = "Network",
	[GROUP_SPEED] = "Performance (the smaller value of the two ends counts)",
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

/* Prints the words of text from column `from' on, with line breaks before COLUMNS. */
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
static void format_row_names(const struct option_row *row, char *to, size_t size)
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

	format_row_names(row, left, sizeof left);
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
	fprintf(to, "\nSizes take k, M, G, T (powers of 1024). Manual: man %s\n", m->name);
}

void print_version(FILE *to, enum program program)
{
	fprintf(to, "%s (sluice) %s\nprotocol %d\ntransports: %stcp%s\n", program_name(program),
		SLUICE_VERSION, PROTOCOL_VERSION, verbs_built() ? "rdma " : "",
		program == RDCP ? " ssh" : "");
}

/* One line for each option: its names, a tab, its argument. tests/lint/help and the completions
 * read it. */
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
