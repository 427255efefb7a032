/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_MODULE_H
#define CMD_SERVE_MODULE_H

/* The modules that a rdcpd serves, as --module names them: NAME=DIR, NAME=DIR:ro, NAME=DIR:wo or
 * NAME=DIR:rw. Without an ending a module is read only. */

#include <limits.h>
#include <stdbool.h>
#include "protocol/message.h"

struct module {
	char name[MODULE_NAME_MAX];
	char path[PATH_MAX]; /* absolute */
	bool may_read, may_write;
};

/* Returns 0, or -1 with a failure (OUT_USAGE). */
int module_parse(const char *text, struct module *m);
/* Makes the path absolute, and checks that it is a directory other than the root. */
int module_open(struct module *m);
/* NULL: there is none of this name. */
const struct module *module_find(const struct module *list, unsigned count, const char *name);

#endif
