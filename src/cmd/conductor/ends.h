/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_ENDS_H
#define CMD_CONDUCTOR_ENDS_H

/*
 * `rdcp --ends': one end after the other over one connection, so that rdbench needs to log in
 * once only.  Each is a process of its own, which greets when the one before it is gone.
 */
int ends_run(void);

#endif
