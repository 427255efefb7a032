/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_FAR_COMMAND_H
#define CMD_CONDUCTOR_FAR_COMMAND_H

/*
 * Starts rdcp on another host: with ssh, or the command of --rsh, and a fixed command line. That
 * command line contains no file name or pattern of the user's; those are sent over stdin.
 */

#include "cmd/cli/options.h"
#include "cmd/process/child.h"

enum { FAR_ARGV_MAX = SSH_ARGS_MAX + 64, FAR_TEXT_MAX = 4096 };

struct far_command {
	char *argv[FAR_ARGV_MAX]; /* ends with NULL */
	unsigned argc;
	char words[FAR_TEXT_MAX]; /* the words of --rsh */
	char remote[FAR_TEXT_MAX]; /* the command for the remote host */
};

/* verb: "--end", "--lane" or "--lane-listen". Returns 0, or -1 with OUT_USAGE. */
int far_command(const struct options *o, const char *host, const char *verb,
		struct far_command *out);
/* Starts it with pipes to its stdin and stdout. */
int far_start(const struct options *o, const char *host, const char *verb, struct child *out);

/* Quotes a program's path as one word for a shell. A ~ at the start keeps its meaning. */
int shell_quote(const char *word, char *to, size_t size);

#endif
