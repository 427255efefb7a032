/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_CONFIG_H
#define CMD_SERVE_CONFIG_H

/* The configuration file of rdcpd, rdcpd.conf(5): lines KEY = VALUE, first of the daemon, then of
 * each module below its name in brackets. */

#include "cmd/cli/options.h"
#include "cmd/serve/census.h"
#include "cmd/serve/module.h"
#include "cmd/serve/transports.h"

enum { CONFIG_ADDRESS_MAX = 256 };
enum { DRAIN_S = 600, DRAIN_S_MAX = 7 * 24 * 3600 }; /* of "drain limit" */

struct config {
	char address[CONFIG_ADDRESS_MAX]; /* "": not given */
	char key_file[PATH_MAX], secrets[PATH_MAX]; /* "": not given */
	unsigned port;
	bool has_port;
	struct host_rules allow, deny;
	unsigned drain_s;
	struct module modules[MODULES_MAX];
	unsigned module_count;
	struct limits limits; /* 0: not given */
	struct transports transports;
	bool has_timeout;
};

/* What holds without a file. c must be zeros. */
void config_init(struct config *c);
/*
 * Reads the file, which must belong to root or this user, and be writable by its owner only. c has
 * what holds without it. Logs each error with its file and line. Returns 0, or -1 with a failure
 * (OUT_USAGE if there were errors).
 */
int config_read(const char *path, struct config *c);

/* A key that it knows, for tests; NULL: there are no more. */
const char *config_key(unsigned i, bool *of_module);

#endif
