/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PROCESS_SIGNALS_H
#define CMD_PROCESS_SIGNALS_H

/* The signals that a conductor minds come out of a descriptor, one by one. */

#include <stdbool.h>

/* SIGHUP under nohup(1), SIGINT in a job that a script runs in the background: such a signal stays
 * ignored. */
bool signal_is_ignored(int signo);

/* They are its own from now on. */
int signals_begin(void);
/* There is nothing left to be stopped: they do again what they do by default. */
void signals_end(void);

/* To be polled for reading. */
int signals_fd(void);
/* So long, or until a signal is there that ends the program; it stays there to be taken. */
void signals_pause(int ms);
/* The next one that came; 0: none. */
int signals_next(void);

#endif
