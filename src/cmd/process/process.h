/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_PROCESS_H
#define CMD_PROCESS_PROCESS_H

/* What all programs do first with their own process, and how they exit. */

#include "cmd/cli/options.h"

/* Opens those of descriptors 0 to 2 that are closed, in the wrong direction: no other file can get
 * their numbers, and using them still fails. Returns 0, or -1 with a failure. */
int process_reserve_stdio(void);
/* Protects the program's secrets: no core file, no debugger of another user. */
void process_protect_secrets(void);
/* Raises the limit of open descriptors to the maximum, because directories of a tree are held
 * open. */
void process_raise_descriptors(void);
/* Sets up the log according to -q and -v. */
void process_start_log(const struct options *o);

/* Parses the command line. Answers --help and similar options, or an error, and exits. */
void process_parse_options(struct options *o, enum program program, int argc, char **argv);
/* Flushes stdout. Returns the errno of the first write to it that failed, or 0. Call after each
 * piece of output: later, errno may be another one. */
int process_flush_stdout(void);
/* Flushes stdout and exits. If that fails, prints the error and turns OUT_DONE into OUT_FILE. */
_Noreturn void process_exit(int code);
/* Prints this thread's failure, after a usage error also the synopsis, and exits with its code. */
_Noreturn void process_exit_failed(enum program program);
/* The same without a synopsis: what is wrong is in a file that an option names. */
_Noreturn void process_exit_plainly(void);

#endif
