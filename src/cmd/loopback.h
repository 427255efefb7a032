/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_LOOPBACK_H
#define CMD_LOOPBACK_H

/* TCP between processes of one user on this host. */

#include <stdbool.h>

/* Connect to a port: a descriptor, or -1 with errno. */
int connect_loopback(unsigned port);
/* Listen at any; non-blocking. A descriptor, or -1 with errno. */
int listen_loopback(unsigned *port);
/* Take one connection: a descriptor, or -1 with errno. */
int accept_loopback(int listener);
/*
 * Is a connection's other end a socket of this user?  1, 0, or -1 with errno when that can't be
 * found out.  Loopback has no credentials like those of a unix socket; the kernel's list of
 * sockets has their owners.
 */
int loopback_is_ours(int fd);

#endif
