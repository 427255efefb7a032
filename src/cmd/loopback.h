/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_LOOPBACK_H
#define CMD_LOOPBACK_H

/* TCP between processes of one user on this host. */

#include <stdbool.h>

/* Connect to a port: a descriptor, or -1 with errno. */
int connect_loopback(unsigned port);
/* Listen at any; non-blocking. A descriptor, or -1 with errno. */
int listen_loopback(unsigned *port);
/*
 * Take one connection, if its other end is a socket of this user: a descriptor; -1 with errno,
 * EPERM when it is not, and the connection is closed.  Loopback has no credentials like those of
 * a unix socket; the kernel's list of sockets has their owners.
 */
int accept_loopback(int listener);

#endif
