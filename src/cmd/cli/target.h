/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_TARGET_H
#define CMD_CLI_TARGET_H

/*
 * What a user names as source or target of rdcp:
 *
 *	path  ./a:b  host:path  user@host:path  [fe80::1%eth0]:path  -
 *
 * A colon after a slash is part of a local name.  "host:" is the home directory there.
 */

#include <stdbool.h>
#include "protocol/message.h"

struct target {
	bool stdio; /* "-" */
	char host[HOST_MAX]; /* as for ssh, with user@ and without brackets; "" for local */
	const char *path; /* into the text */
};

/* 0, or -1 with a failure (OUT_USAGE). text must outlive t. */
int target_parse(const char *text, struct target *t);
/* The descriptor of this process that a target's path is another name for (/dev/stdout, /dev/fd/N,
 * or a link to one of them), if it has one that is no directory: it is written to from where it is,
 * not opened anew. *fd -1: it is none.  A name of one that is not open: -1 with a failure.  To be
 * asked before this process opens anything of its own. */
int target_descriptor(const char *path, int *fd);
/* The number in such a name; -1: none. */
int descriptor_named(const char *path);

#endif
