/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_ENDS_COMMAND_H
#define CMD_CONDUCTOR_ENDS_COMMAND_H

/*
 * `rdcp --ends': runs one end after the other over one connection, so that rdbench logs in only
 * once. Each end is its own process, and greets when the one before it is gone.
 */
int ends_run(void);

#endif
