/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_PUMP_H
#define CMD_CONDUCTOR_PUMP_H

/* Relays bytes in both directions between two pairs of descriptors until both directions ended. */

struct pump_side {
	int in; /* read from here */
	int out; /* write there; may be the same */
};

/* watch: a descriptor whose end of file stops the relay; -1: none. Closes the descriptors of a and
 * b, but not watch. Returns 0, or -1 if it stopped early (errno). */
int pump_run(const struct pump_side *a, const struct pump_side *b, int watch);

#endif
