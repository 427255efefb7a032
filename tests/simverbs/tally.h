/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_TALLY_H
#define SIMVERBS_TALLY_H

/* Objects that the program has made and not freed. With SIMVERBS_LEAKS in the environment a program
 * that exits with any of them is ended by misuse(). */

enum tally {
	TALLY_CONTEXTS,
	TALLY_DOMAINS,
	TALLY_REGIONS,
	TALLY_CHANNELS,
	TALLY_QUEUES,
	TALLY_PAIRS,
	TALLY_EVENT_CHANNELS,
	TALLY_IDS,
	TALLIES,
};
void tally_add(enum tally kind);
void tally_remove(enum tally kind);

#endif
