/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_MODULE_H
#define CMD_SERVE_MODULE_H

/* The modules that a rdcpd serves: of --module (NAME=DIR, NAME=DIR:ro, NAME=DIR:wo or NAME=DIR:rw),
 * or a section of its configuration file (config.h). Without more a module is read only. */

#include <limits.h>
#include <stdbool.h>
#include "cmd/serve/account.h"
#include "cmd/serve/host_rules.h"
#include "protocol/message.h"
#include "session/channel/key_ring.h"

enum { MODULE_USERS_MAX = 4096 };

struct module {
	char name[MODULE_NAME_MAX];
	char path[PATH_MAX]; /* absolute */
	bool may_read, may_write, may_delete, may_remove;
	bool anonymous, anonymous_writes; /* clients without a key may read it, and write, too */
	bool must_encrypt; /* a client with --encrypt=off is refused */
	bool fsync; /* as if each client had said --fsync */
	char users[MODULE_USERS_MAX]; /* names that may use it, with blanks; "": everybody */
	struct host_rules allow, deny;
	uint64_t refused; /* options: cmd/end/refusals.h */
	char incoming_chmod[CHMOD_MAX]; /* as of --chmod: modes of what is written; "": unchanged */
	unsigned max_sessions; /* at a time; 0: no limit */
	uint64_t max_bytes; /* that a session stores; 0: no limit */
	uint64_t min_free; /* bytes that stay free on its disk */
	bool list; /* clients see it in the list of modules */
	char comment[TEXT_MAX]; /* which they see there, too */
	struct run_as account; /* as which its sessions run */
};

bool module_name_is_valid(const char *name, size_t len);
/* Parses NAME=DIR... . Returns 0, or -1 with a failure (OUT_USAGE). */
int module_parse(const char *text, struct module *m);
/* Makes the path absolute, and checks that it is a directory other than the root. */
int module_open(struct module *m);
/* NULL: there is none of this name. */
const struct module *module_find(const struct module *list, unsigned count, const char *name);
/*
 * Whether a user ("-": one with the key that has no user) may use it from this address. Clients
 * without a key need "anonymous", users "users" if it is given. As in rsyncd.conf: who is in "hosts
 * allow" may; if there is no "hosts deny", nobody else; who is in "hosts deny" may not; all others
 * may. Returns 0, or -1 with a failure (OUT_AUTH).
 */
int module_admit(const struct module *m, const char *user, const union address *from);

/* What a user who may use it may do there. Clients without a key delete and remove nothing. */
struct module_rights {
	bool read, write, delete, remove;
};
struct module_rights module_rights(const struct module *m, const char *user);

#endif
