/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_OPERAND_H
#define CMD_CLI_OPERAND_H

/*
 * A source or target of rdcp as the user names it:
 *
 *	path  ./a:b  rdma://host:port/module/path  host:path  user@host:path  [fe80::1%eth0]:path  -
 *
 * A colon after a slash is part of a local name. "host:" is the home directory there.
 */

#include <stdbool.h>
#include "protocol/message.h"
#include "session/channel/key_ring.h"

struct operand {
	bool stdio; /* "-" */
	/* as for ssh, with user@ and without brackets; "" for this host; rdma://host:port/module of
	 * a daemon (struct daemon_url) */
	char host[HOST_MAX];
	const char *path; /* points into the text */
};

/* A host that is a module of a rdcpd. */
struct daemon_url {
	char user[USER_NAME_MAX]; /* "-": none is given */
	char host[HOST_MAX];
	unsigned port; /* 0: none is given */
	char module[MODULE_NAME_MAX];
};
bool operand_is_daemon(const char *host);
/* Parses a URL up to its module; *rest is what follows, "" for the module itself. Returns 0, or -1
 * with a failure (OUT_USAGE). */
int operand_parse_daemon(const char *text, struct daemon_url *u, const char **rest);
/* The same for what is only listed: the module may be missing, too (u->module ""). */
int operand_parse_listing(const char *text, struct daemon_url *u, const char **rest);
/* Returns 0, or -1 with a failure (OUT_USAGE). text must outlive t. */
int operand_parse(const char *text, struct operand *t);
/* Finds the descriptor of this process that path is another name for (/dev/stdout, /dev/fd/N, or a
 * link to one of them), unless it is a directory. Such a descriptor is written at its current
 * position, not opened again. *fd -1: path is no such name. Returns -1 with a failure if the
 * descriptor is not open. Call it before this process opens anything itself. */
int operand_descriptor(const char *path, int *fd);
/* The number in such a name; -1: none. */
int descriptor_named(const char *path);

#endif
