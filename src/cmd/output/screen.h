/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_SCREEN_H
#define CMD_OUTPUT_SCREEN_H

/*
 * What goes to stderr while a session runs: lines of the log from any thread, and one live line
 * below them that is written over.
 *
 * A terminal that was stopped (Ctrl-S), or a pager that nobody reads, must not stop a session,
 * whose threads all have somebody to answer to.  So nothing here waits: what stderr does not
 * take now is kept, and written by whoever minds the program's descriptors when it does.
 */

#include <stdbool.h>

enum { SCREEN_LINE_MAX = 160, SCREEN_KEPT_MAX = 64 << 10 };

/* The log comes here from now on.  wake (NULL: none) is called, from any thread, when something
 * had to be kept. */
void screen_begin(const char *program, void (*wake)(void));
/* A line without its end, after the program's name. */
void screen_line(const char *text);
/* The live line, "" for none. */
void screen_live(const char *text);
/* Is something kept, so that stderr is to be polled for writing? */
bool screen_waits(void);
/* Write what stderr takes without waiting. */
void screen_flush(void);
/* Take the live line away and write everything, waiting; the log goes to stderr again. */
void screen_end(void);

#endif
