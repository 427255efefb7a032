/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

/* An IPv4 or IPv6 address with a port, in network byte order. */

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};
socklen_t address_len(const union address *a);
/* "10.0.0.1:7000", "[fe80::1%eth0]:7000"; port 0: without it. Returns to. */
char *address_text(const union address *a, char *to, size_t size);

#endif
