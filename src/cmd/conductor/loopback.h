/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_LOOPBACK_H
#define CMD_CONDUCTOR_LOOPBACK_H

/* TCP between processes of one user on this host. */

#include <stdbool.h>

/* Connects to a port. Returns a descriptor, or -1 with errno. */
int loopback_connect(unsigned port);
/* Listens at any free port, non-blocking. Returns a descriptor, or -1 with errno. */
int loopback_listen(unsigned *port);
/* Accepts one connection. Returns a descriptor, or -1 with errno. */
int loopback_accept(int listener);
/*
 * The owner of the other end of a loopback connection. TCP has no peer credentials as unix sockets
 * do, but the kernel's list of sockets names their owners.
 */
enum loopback_peer {
	LOOPBACK_OURS,
	LOOPBACK_FOREIGN, /* another user's */
	LOOPBACK_GONE, /* it is closed */
	LOOPBACK_UNKNOWN, /* the owner can't be found: errno */
};
enum loopback_peer loopback_peer(int fd);

#endif
