/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_LOOPBACK_H
#define CMD_CONDUCTOR_LOOPBACK_H

/* TCP between processes of one user on this host. */

#include <stdbool.h>

/* Connect to a port: a descriptor, or -1 with errno. */
int loopback_connect(unsigned port);
/* Listen at any; non-blocking. A descriptor, or -1 with errno. */
int loopback_listen(unsigned *port);
/* Take one connection: a descriptor, or -1 with errno. */
int loopback_accept(int listener);
/*
 * Whose socket is a connection's other end?  Loopback has no credentials like those of a unix
 * socket; the kernel's list of sockets has their owners.
 */
enum loopback_peer {
	LOOPBACK_OURS,
	LOOPBACK_FOREIGN, /* another user's */
	LOOPBACK_GONE, /* it is closed */
	LOOPBACK_UNKNOWN, /* that can't be found out: errno */
};
enum loopback_peer loopback_peer(int fd);

#endif
