/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_START_SEND_H
#define CMD_CONDUCTOR_START_SEND_H

/*
 * What a conductor tells its two ends to do: START with a fresh secret, names, patterns, the names
 * of --files-from as they come, GO.
 */

#include "cmd/conductor/conductor.h"
#include "cmd/conductor/end_pipe.h"

struct start_send {
	const struct conductor_job *job;
	struct end_pipe *links; /* both: LINK_SOURCE, LINK_SINK */
	int listener; /* which of them listens at first */
	bool over_ssh; /* lanes go over ssh */
};
/* All up to the listed names. 0, or -1 with a failure. */
int start_send_all(const struct start_send *d);
/* One more name of --files-from. */
int start_send_listed(const struct start_send *d, const char *name);
/* That is all. */
int start_send_go(const struct start_send *d);

#endif
