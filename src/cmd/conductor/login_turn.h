/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_LOGIN_TURN_H
#define CMD_CONDUCTOR_LOGIN_TURN_H

/*
 * Processes that each start an ssh log in one at a time if there is a terminal on which ssh may ask
 * for a password: otherwise two would ask at once. After a login that was too quick for a person to
 * have typed anything, the others log in in parallel.
 *
 * A turn is a record lock, so it ends with its process, however that exits.
 */

#include <stdint.h>

/* Returns a descriptor for processes that are forked later; -1: no turns are needed, or memory for
 * them ran out. */
int login_turns_open(void);
/* Waits for this process's turn; returns when it began (clock_ms). fd -1: does not wait. */
uint64_t login_turn_begin(int fd);
/* Ends the turn that began then. */
void login_turn_end(int fd, uint64_t began_ms);

#endif
