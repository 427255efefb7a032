/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

/* An IPv4 or IPv6 address with a port, in network byte order. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};
socklen_t address_len(const union address *a);
/* "10.0.0.1:7000", "[fe80::1%eth0]:7000"; port 0: no port. Returns to. */
char *address_text(const union address *a, char *to, size_t size);

bool sockaddr_is_address(const struct sockaddr *sa);
/* sa must be AF_INET or AF_INET6. */
union address address_of_sockaddr(const struct sockaddr *sa);
/* Converts an IPv4-mapped IPv6 address to IPv4; returns any other unchanged. */
union address address_unmapped(const union address *a);
union address address_with_port(const union address *a, unsigned port);
union address address_loopback(int family, unsigned port);

bool address_is_loopback(const union address *a);
bool address_is_link_local(const union address *a);
/* The address of a single host: not unspecified, multicast, broadcast or IPv4-mapped. */
bool address_is_unicast(const union address *a);
/* Compares without ports and zones. */
bool address_same(const union address *a, const union address *b);
/* The bytes of the address itself; their number in *bytes. */
const uint8_t *address_bits(const union address *a, unsigned *bytes);

#endif
