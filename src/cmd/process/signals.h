/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_SIGNALS_H
#define CMD_PROCESS_SIGNALS_H

/* A descriptor from which a conductor reads its signals, one by one. */

#include <stdbool.h>

/* Whether this signal is ignored, and must stay so: SIGHUP under nohup(1), SIGINT in a background
 * job of a script. */
bool signal_is_ignored(int signo);

/* From now on the signals go to the descriptor. */
int signals_begin(void);
/* Restores the default actions, when there is nothing left to stop. */
void signals_end(void);

/* The descriptor to poll for reading. */
int signals_fd(void);
/* Waits this long, or until a signal arrives that ends the program. The signal remains to be
 * read. */
void signals_pause(int ms);
/* The next signal that arrived; 0: none. */
int signals_next(void);

#endif
