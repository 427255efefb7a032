/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_DAEMON_CALL_H
#define CMD_CONDUCTOR_DAEMON_CALL_H

/*
 * Starts an end at a rdcpd. Where ssh would run for a far end, a forked process connects to the
 * daemon, proves that it has the key, names the module, and carries the frames. If that fails, it
 * reports to the conductor as an end would: GREETING, then VERDICT.
 */

#include "base/address.h"
#include "cmd/cli/options.h"
#include "cmd/cli/operand.h"
#include "cmd/process/child.h"
#include "session/channel/framer.h"

/* Returns 0, or -1 with a failure (OUT_USAGE) if a --key-file is neither FILE nor HOST=FILE. */
int daemon_check_keys(const struct options *o);
/* url: of a module, as in struct operand. *dialed, if not NULL, is memory of
 * daemon_share_address(): when GREETING arrives, it is the address that answered. */
int daemon_start(const struct options *o, const char *url, union address *dialed,
		 struct child *out);
/* Memory that this process shares with those that it starts, with family 0. Returns NULL if there
 * is none. */
union address *daemon_share_address(void);
void daemon_unshare_address(union address *a);
struct daemon_end {
	union address dialed; /* the one that answered */
	struct channel *ch; /* the caller's */
	struct framer framer; /* of what it sends */
	struct frame greeting; /* its first frame; valid until the next one is read */
};
/* Connects in this process, names the module, and awaits the end's first frame. While the daemon
 * has no room for this client, or closes its connection, tries again until --connect-timeout is
 * over. Returns 0, or -1 with a failure, after which there is nothing to free. */
int daemon_open(const struct options *o, const struct daemon_url *url, struct daemon_end *e);
/* Connects to the port of a daemon, for a lane. Returns a descriptor, or -1 with a failure. */
int daemon_connect_lane(const struct options *o, const char *url, uint64_t deadline_ms);
/* The host in the URL, for messages. */
void daemon_name(const char *url, char to[static HOST_MAX]);

#endif
