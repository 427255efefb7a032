/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_FAR_H
#define CMD_CONDUCTOR_FAR_H

/*
 * Starting rdcp on another host: ssh, or what --rsh says, with a fixed command.  No word of the
 * user's about files is in it; what there is to say is said over stdin.
 */

#include "cmd/cli/options.h"
#include "cmd/process/child.h"

enum { FAR_ARGV_MAX = SSH_ARGS_MAX + 64, FAR_TEXT_MAX = 4096 };

struct far_command {
	char *argv[FAR_ARGV_MAX]; /* NULL at the end */
	unsigned argc;
	char words[FAR_TEXT_MAX]; /* of --rsh */
	char remote[FAR_TEXT_MAX]; /* what runs there */
};

/* verb: "--end", "--lane" or "--lane-listen". 0, or -1 with OUT_USAGE. */
int far_command(const struct options *o, const char *host, const char *verb,
		struct far_command *out);
/* Start it with its stdio in our hands. */
int far_start(const struct options *o, const char *host, const char *verb, struct child *out);

/* Quote a program's path for a shell, so that it is one word; a ~ at its start still works. */
int shell_quote(const char *word, char *to, size_t size);

#endif
