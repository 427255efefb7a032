/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_HOST_GATE_H
#define CMD_SERVE_HOST_GATE_H

/* "hosts allow" and "hosts deny" of the daemon: which addresses get a process at all. */

#include "cmd/serve/settings.h"
#include "session/connect/strangers.h"

struct host_gate {
	uint64_t quiet_until; /* clock_ms */
	unsigned unlogged;
};

/* Whether a stranger may go on. Logs those that may not, one line a second at most. */
bool host_gate_admits(struct host_gate *g, const struct settings *s, const struct stranger *from);

#endif
