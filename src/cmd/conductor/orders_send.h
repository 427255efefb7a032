/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_ORDERS_SEND_H
#define CMD_CONDUCTOR_ORDERS_SEND_H

/*
 * Sends a conductor's orders to its two ends: START with a fresh secret, names, patterns, the names
 * of --files-from as they arrive, GO.
 */

#include "cmd/conductor/conductor.h"
#include "cmd/conductor/end_pipe.h"
#include "lane/head.h"

struct orders_send {
	const struct conductor_job *job;
	struct end_pipe *pipes; /* both: END_SOURCE, END_SINK */
	int listener; /* the end that listens first */
	bool over_ssh; /* lanes use ssh */
	bool bridged; /* two daemons: both listen */
	uint8_t secret[LANE_SECRET]; /* of the session; the caller wipes it */
};
/* Makes the secret, and sends everything before the listed names. Returns 0, or -1 with a failure.
 */
int orders_send_all(struct orders_send *d);
/* Sends one name of --files-from. */
int orders_send_listed(const struct orders_send *d, const char *name);
/* Sends GO: the orders are complete. */
int orders_send_go(const struct orders_send *d);

#endif
