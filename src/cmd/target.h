/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_TARGET_H
#define CMD_TARGET_H

/*
 * What a user names as source or target of rdcp:
 *
 *	path  ./a:b  host:path  user@host:path  [fe80::1%eth0]:path  -
 *
 * A colon after a slash is part of a local name.  "host:" is the home directory there.
 */

#include <stdbool.h>
#include "session/message.h"

struct target {
	bool stdio; /* "-" */
	char host[HOST_MAX]; /* as for ssh, with user@ and without brackets; "" for local */
	const char *path; /* into the text */
};

/* 0, or -1 with a failure (OUT_USAGE). text must outlive t. */
int target_parse(const char *text, struct target *t);
/* Is it another name for stdout? */
bool names_stdout(const char *path);

#endif
