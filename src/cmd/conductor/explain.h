/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_EXPLAIN_H
#define CMD_CONDUCTOR_EXPLAIN_H

/* Messages about how an end started, or why it did not. All but take_greeting() return -1. */

#include "cmd/cli/options.h"
#include "cmd/conductor/end_pipe.h"

/* Handles an end's first frame. Returns 0, or -1 if it is not a greeting or of another protocol
 * version. */
int take_greeting(struct end_pipe *l, const struct frame *f);
/* Something other than a frame arrived: a shell's startup files print. */
int explain_text(const struct end_pipe *l);
/* It exited before its greeting (status as in waitpid(2)). */
int explain_exit(const struct end_pipe *l, const struct options *o, int status);
/* It died later without a verdict. reaped: status is known. */
int explain_death(const struct end_pipe *l, int status, bool reaped);

#endif
