/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_NOTES_H
#define CMD_END_NOTES_H

/*
 * The lines of an end's log on their way to its conductor. Any thread may log, even with locks held
 * that sending needs. So lines are queued here, and the thread that calls notes_take() sends them.
 */

#include "protocol/message.h"

/* Redirects the log to this queue. */
void notes_begin(void);
/* Takes the next line; returns false if there is none. */
bool notes_take(struct msg_note *m);

#endif
