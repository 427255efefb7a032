/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_EXPLAIN_H
#define CMD_CONDUCTOR_EXPLAIN_H

/* How an end began, or why it did not: the sentences. All but take_greeting() return -1. */

#include "cmd/cli/options.h"
#include "cmd/conductor/end_pipe.h"

/* An end's first frame. 0, or -1 when it is none, or of another protocol version. */
int take_greeting(struct end_pipe *l, const struct frame *f);
/* Something else came: a shell's startup files print. */
int explain_text(const struct end_pipe *l);
/* It exited (status as waitpid(2) has it) before its greeting. */
int explain_exit(const struct end_pipe *l, const struct options *o, int status);
/* It died later without saying how it ended; reaped: status is known. */
int explain_death(const struct end_pipe *l, int status, bool reaped);

#endif
