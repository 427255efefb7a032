/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_END_H
#define CMD_END_END_H

#include <stdbool.h>
#include "cmd/end/guest.h"

/*
 * Runs one end of rdcp: forked by a conductor on its own host, or `rdcp --end' that the conductor
 * started over ssh. The end greets, follows its orders, reports only to the conductor, and returns
 * the exit code. Owns both descriptors.
 */
int end_run(int in, int out, bool far);
/* Before end_run(): sets a socket to the other end, which is on this host too; see
 * copy/io/clone.h. */
void end_set_clone_socket(int socket);

/* Before end_run(): makes it an end of rdcpd. far is false then. g is borrowed. */
void end_set_guest(const struct guest *g);

#endif
