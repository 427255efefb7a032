/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_BRIDGE_LANE_H
#define CMD_CONDUCTOR_BRIDGE_LANE_H

/* The process of one lane between two daemons. */

#include "cmd/conductor/bridge.h"

struct bridge_lane {
	const struct bridge_way *way;
	const struct between *between;
	unsigned index;
};
/* Runs until `in' ends, or a connection cannot be made in time. Writes these reports to `out', each
 * in one write: */
enum { BRIDGE_USED = 'u', BRIDGE_FAILED = 'f' /* followed by the reason as text */ };
int bridge_lane_run(void *bridge_lane, int in, int out);

#endif
