/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_LISTING_H
#define CMD_CONDUCTOR_LISTING_H

#include "cmd/cli/options.h"

/* Prints what url names at a rdcpd: its modules, a directory, or one file; a line for each as it
 * arrives. Returns 0, or -1 with a failure. */
int listing_run(const struct options *o, const char *url);

#endif
