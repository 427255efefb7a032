/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_SPOOL_H
#define CMD_OUTPUT_SPOOL_H

/*
 * Lines for stdout that the user requested: all of them, in order. While a session runs, nothing
 * waits for the reader of stdout (a pager, a stopped terminal). What stdout does not accept now is
 * kept; if it is much, in a nameless file.
 *
 * One thread.
 */

#include <stdbool.h>
#include <stdio.h>

/* Returns a FILE whose output goes to fd, or NULL with a failure. spool_end() closes it. */
FILE *spool_begin(int fd);
/* The descriptor to poll for writing; -1: nothing is pending. */
int spool_pending_fd(void);
/* Writes as much as fd accepts without waiting. */
void spool_flush(void);
/* As spool_flush().  -1, with a failure, if fd takes no more; spool_end() does not report that
 * again. */
int spool_check(void);
/* Writes everything, waiting. Returns 0, or -1 with a failure if not everything could be
 * written. */
int spool_end(void);

#endif
