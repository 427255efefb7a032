/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_PROCESS_H
#define CMD_PROCESS_PROCESS_H

/* What all programs do to their own process first, and how they end. */

#include "cmd/cli/options.h"

/* Descriptors 0 to 2 that are closed are opened the wrong way round: nothing else can get
 * their numbers, and using them still fails. */
void keep_stdio(void);
/* The program has secrets: no core file, no debugger of another user's. */
void keep_secrets(void);
/* As many descriptors at a time as the system lets us have: directories of a tree are held open. */
void raise_descriptors(void);
/* The log as -q and -v say. */
void start_log(const struct options *o);

/* Read the command line; answer --help and its like, or a mistake, and exit. */
void take_command_line(struct options *o, enum program program, int argc, char **argv);
/* Make sure that what was written to stdout came there, and exit. */
_Noreturn void exit_with(int code);
/* Print this thread's failure, and the synopsis after a mistake, and exit with its code. */
_Noreturn void exit_failed(enum program program);

#endif
