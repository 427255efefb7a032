/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_NOTES_H
#define CMD_END_NOTES_H

/*
 * Lines of an end's log on their way to its conductor.  Any thread may log, also while it holds
 * locks that sending needs; so lines are kept here and sent by whoever calls notes_take().
 */

#include "protocol/message.h"

/* The log comes here from now on. */
void notes_begin(void);
/* The next line: false when there is none. */
bool notes_take(struct msg_note *m);

#endif
