/* SPDX-License-Identifier: Apache-2.0 */
#include "base/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

socklen_t address_len(const union address *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof a->in6 : sizeof a->in4;
}

static char *format_ipv6(const struct sockaddr_in6 *in6, char *to, size_t size)
{
	char host[INET6_ADDRSTRLEN], zone[IF_NAMESIZE + 1] = "";

	inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
	if (in6->sin6_scope_id != 0) {
		zone[0] = '%';
		if (!if_indextoname(in6->sin6_scope_id, zone + 1))
			snprintf(zone + 1, IF_NAMESIZE, "%u", in6->sin6_scope_id);
	}
	if (in6->sin6_port == 0)
		snprintf(to, size, "%s%s", host, zone);
	else
		snprintf(to, size, "[%s%s]:%u", host, zone, ntohs(in6->sin6_port));
	return to;
}

char *address_text(const union address *a, char *to, size_t size)
{
	char host[INET_ADDRSTRLEN];

	if (a->sa.sa_family == AF_INET6)
		return format_ipv6(&a->in6, to, size);
	if (a->sa.sa_family != AF_INET) {
		snprintf(to, size, "unknown address");
		return to;
	}
	inet_ntop(AF_INET, &a->in4.sin_addr, host, sizeof host);
	if (a->in4.sin_port == 0)
		snprintf(to, size, "%s", host);
	else
		snprintf(to, size, "%s:%u", host, ntohs(a->in4.sin_port));
	return to;
}

bool address_is_loopback(const union address *a)
{
	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in4.sin_addr.s_addr) >> 24 == 127;
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

bool address_is_link_local(const union address *a)
{
	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in4.sin_addr.s_addr) >> 16 == 0xa9fe;
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
}

bool address_is_unicast(const union address *a)
{
	uint32_t in4 = ntohl(a->in4.sin_addr.s_addr);

	if (a->sa.sa_family == AF_INET)
		return in4 >> 24 != 0 && in4 >> 28 < 0xe;
	return a->sa.sa_family == AF_INET6 && !IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr) &&
	       !IN6_IS_ADDR_MULTICAST(&a->in6.sin6_addr) &&
	       !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr);
}

const uint8_t *address_bits(const union address *a, unsigned *bytes)
{
	*bytes = a->sa.sa_family == AF_INET ? 4 : 16;
	return a->sa.sa_family == AF_INET ? (const uint8_t *)&a->in4.sin_addr
					  : (const uint8_t *)&a->in6.sin6_addr;
}

bool address_same(const union address *a, const union address *b)
{
	unsigned len;
	const uint8_t *x = address_bits(a, &len), *y = address_bits(b, &len);

	return a->sa.sa_family == b->sa.sa_family && memcmp(x, y, len) == 0;
}

union address address_with_port(const union address *a, unsigned port)
{
	union address with = *a;

	if (a->sa.sa_family == AF_INET)
		with.in4.sin_port = htons((uint16_t)port);
	else
		with.in6.sin6_port = htons((uint16_t)port);
	return with;
}

union address address_loopback(int family, unsigned port)
{
	union address in4 = {.in4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
	union address in6 = {.in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};

	return address_with_port(family == AF_INET6 ? &in6 : &in4, port);
}

union address address_unmapped(const union address *a)
{
	union address in4 = {.in4 = {.sin_family = AF_INET}};

	if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return *a;
	memcpy(&in4.in4.sin_addr, (const uint8_t *)&a->in6.sin6_addr + 12, 4);
	return in4;
}

bool sockaddr_is_address(const struct sockaddr *sa)
{
	return sa && (sa->sa_family == AF_INET || sa->sa_family == AF_INET6);
}

union address address_of_sockaddr(const struct sockaddr *sa)
{
	union address a = {.sa = {.sa_family = AF_UNSPEC}};

	memcpy(&a, sa, sa->sa_family == AF_INET ? sizeof a.in4 : sizeof a.in6);
	return a;
}
