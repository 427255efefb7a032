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

static char *text_of_6(const struct sockaddr_in6 *in6, char *to, size_t size)
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
		return text_of_6(&a->in6, to, size);
	if (a->sa.sa_family != AF_INET) {
		snprintf(to, size, "nowhere");
		return to;
	}
	inet_ntop(AF_INET, &a->in4.sin_addr, host, sizeof host);
	if (a->in4.sin_port == 0)
		snprintf(to, size, "%s", host);
	else
		snprintf(to, size, "%s:%u", host, ntohs(a->in4.sin_port));
	return to;
}
