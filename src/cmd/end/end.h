/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_END_H
#define CMD_END_END_H

#include <stdbool.h>

/*
 * One end of rdcp: forked by a conductor on its own host, or `rdcp --end' that it started over
 * ssh.  It greets, does what it is told, reports to the conductor alone, and returns the
 * exit code.  Takes both descriptors.
 */
int end_run(int in, int out, bool far);
/* Before that: a socket to the other end, which is on this host, too; see copy/io/clone.h. */
void end_share(int socket);

#endif
