/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_DAEMON_CALL_H
#define CMD_CONDUCTOR_DAEMON_CALL_H

/*
 * Starts an end at a rdcpd. Where ssh would run for a far end, a forked process connects to the
 * daemon, proves that it has the key, names the module, and carries the frames. If that fails, it
 * reports to the conductor as an end would: GREETING, then VERDICT.
 */

#include "cmd/cli/options.h"
#include "cmd/cli/operand.h"
#include "cmd/process/child.h"
#include "session/channel/channel.h"

/* url: of a module, as in struct operand. */
int daemon_start(const struct options *o, const char *url, struct child *out);
/* Connects in this process, and names the module. Returns 0, or -1 with a failure. */
int daemon_open(const struct options *o, const struct daemon_url *url, struct channel **out);
/* The host in the URL, for messages. */
void daemon_name(const char *url, char to[static HOST_MAX]);

#endif
