/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CHECK_SURVEY_CALL_H
#define CMD_CHECK_SURVEY_CALL_H

/*
 * Surveys a host in a separate process. On a far host that is `rdcp --survey', started over ssh
 * with a fixed command like rdcp's end. On this host it is a forked process: librdmacm keeps
 * devices open, and ends forked later could not use them.
 */

#include "cmd/cli/options.h"
#include "cmd/conductor/end_pipe.h"

struct survey_call {
	const struct options *o;
	const char *host; /* as ssh wants it; "" for this host */
	void (*found)(void *ctx, const struct msg_finding *m);
	void *ctx;
};
/* l gets the host's name and its greeting, *control_ns a round-trip time to the survey. Returns 0,
 * or -1 if the survey could not be started or did not finish. */
int survey_call(const struct survey_call *call, struct end_pipe *l, uint64_t *control_ns);

#endif
