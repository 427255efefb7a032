/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_SCREEN_H
#define CMD_OUTPUT_SCREEN_H

/*
 * Output to stderr while a session runs: lines of the log from any thread, and below them one live
 * line that is rewritten in place.
 *
 * A stopped terminal (Ctrl-S), or a pager that is not read, must not stop a session, because all
 * its threads have peers that wait for them. So nothing here waits. What stderr does not accept now
 * is kept, and written when stderr accepts it, by the thread that polls the program's descriptors.
 */

#include <stdbool.h>

enum { SCREEN_LINE_MAX = 160, SCREEN_KEPT_MAX = 64 << 10 };

/* Redirects the log here. wake (may be NULL) is called, from any thread, when output had to be
 * kept. */
void screen_begin(const char *program, void (*wake)(void));
/* Prints a line, given without its newline, after the program's name. */
void screen_line(const char *text);
/* Sets the live line; "" for none. */
void screen_live(const char *text);
/* Whether output is kept, so that the caller must poll stderr for writing. */
bool screen_is_pending(void);
/* Writes what stderr accepts without waiting. */
void screen_flush(void);
/* Removes the live line and writes everything, waiting. The log goes to stderr again. */
void screen_end(void);

#endif
