/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_SURVEY_CALL_H
#define CMD_CHECK_SURVEY_CALL_H

/*
 * Have a host surveyed by a process of its own: on a far one `rdcp --survey', started as rdcp's
 * end is, over ssh with a fixed command; on this one a forked one, since librdmacm keeps devices
 * open, which the ends that are forked later could not use.
 */

#include "cmd/cli/options.h"
#include "cmd/conductor/end_pipe.h"

struct survey_call {
	const struct options *o;
	const char *host; /* as ssh wants it, "" for this one */
	void (*found)(void *ctx, const struct msg_finding *m);
	void *ctx;
};
/* l gets the host's name and its greeting, *control_ns a round trip to the survey.  0, or -1 when
 * it could not be started, or did not come to its end. */
int survey_call(const struct survey_call *call, struct end_pipe *l, uint64_t *control_ns);

#endif
