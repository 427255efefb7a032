/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_SPOOL_H
#define CMD_OUTPUT_SPOOL_H

/*
 * Lines for stdout that were asked for: all of them, in order, but nobody waits for whoever
 * reads them (a pager, a terminal that was stopped) while a session runs.  What stdout does not
 * take now is kept, what is much of it in a file without a name.
 *
 * One thread.
 */

#include <stdbool.h>
#include <stdio.h>

/* What is written to the file returned goes to fd; NULL with a failure.  spool_end() closes it. */
FILE *spool_begin(int fd);
/* To be polled for writing; -1: nothing waits. */
int spool_waits(void);
/* Hand on what was written, as far as it is taken without waiting. */
void spool_flush(void);
/* Write everything, waiting.  0, or -1 with a failure when not all could be written. */
int spool_end(void);

#endif
