/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tos.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

int tos_set(int fd, int family, unsigned tos)
{
	/* An IPv6 socket gets both: the peer may have an IPv4-mapped address. */
	static const struct {
		int level, name;
	} octets[] = {{IPPROTO_IP, IP_TOS}, {IPPROTO_IPV6, IPV6_TCLASS}};
	int octet = (int)tos - 1;

	if (!tos)
		return 0;
	for (int i = 0; i < (family == AF_INET6 ? 2 : 1); i++) {
		if (setsockopt(fd, octets[i].level, octets[i].name, &octet, sizeof octet) != 0)
			return -1;
	}
	return 0;
}
