/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_PUMP_H
#define CMD_CONDUCTOR_PUMP_H

/* Bytes both ways between two pairs of descriptors, until both ways have ended. */

struct pump_side {
	int in; /* read from here */
	int out; /* write there; may be the same */
};

/* watch: a descriptor whose end ends it all, -1: none.  Descriptors are closed, watch is not.
 * 0, or -1 when it broke off (errno). */
int pump_run(const struct pump_side *a, const struct pump_side *b, int watch);

#endif
