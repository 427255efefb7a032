/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_LOGIN_TURN_H
#define CMD_CONDUCTOR_LOGIN_TURN_H

/*
 * Processes that each start an ssh take turns at logging in, where a terminal is there on which
 * ssh may ask for a password: two of them would ask at once.  After a login that was too quick
 * for a person to have typed anything, the others log in in parallel.
 *
 * A turn is a record lock, so that it ends with its process however that ends.
 */

#include <stdint.h>

/* A descriptor for processes that are forked later, or -1: no turns are needed, or no memory for
 * them. */
int login_turns_open(void);
/* Wait for one's turn; returns when it began (clock_ms). fd -1: at once. */
uint64_t login_turn_begin(int fd);
/* The login that began then is over. */
void login_turn_end(int fd, uint64_t began_ms);

#endif
