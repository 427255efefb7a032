/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_SETTINGS_H
#define CMD_SERVE_SETTINGS_H

/* What a rdcpd serves, and to whom: from its options and its configuration file. It can be loaded
 * again while clients are served. */

#include "cmd/cli/options.h"
#include "cmd/serve/census.h"
#include "cmd/serve/module.h"
#include "cmd/serve/transports.h"
#include "session/channel/key_ring.h"

struct settings {
	struct module modules[MODULES_MAX];
	unsigned module_count;
	struct key_ring keys; /* of the users; "-": of anybody who has it */
	char address[256]; /* the only one to listen at, or "" */
	unsigned port;
	struct host_rules allow, deny; /* of addresses, for all modules */
	struct limits limits;
	struct transports transports;
	unsigned drain_s; /* how long sessions may go on after SIGTERM */
};

enum { OPTIONS_WRONG = -2 };
/* Options come before the file. Checks all that can be checked: modules, keys, and whether a
 * process can be confined. Logs each error but the last, which is the failure. Returns 0; or -1,
 * or OPTIONS_WRONG, with a failure, after which there is nothing to free. */
int settings_load(const struct options *o, struct settings **out);
/* Sets the limits to what they are without any configuration, but for options. Returns 0, or -1
 * with a failure. */
int settings_take_limits(struct settings *s, const struct options *o);
/* How sessions move data: what the options leave open is as in otherwise. */
void settings_take_transports(struct settings *s, const struct options *o,
			      const struct transports *otherwise);
/* Wipes the keys. s may be NULL. */
void settings_free(struct settings *s);

#endif
