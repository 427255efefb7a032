/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/listeners.h"

#include <sys/socket.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "base/tos.h"
#include "lane/tcp/tcp_connect.h"
#include "session/connect/offer_place.h"

static int listen_at(struct server *s, const union address *at)
{
	unsigned port;
	int fd = tcp_listen(at, s->port, s->port, s->settings->transports.tos, &port);

	if (fd < 0)
		return -1;
	s->listeners[s->listener_count++] = fd;
	s->port = port;
	return 0;
}

int listeners_open(struct server *s)
{
	union address any4 = {.in4 = {.sin_family = AF_INET}};
	union address any6 = {.in6 = {.sin6_family = AF_INET6}};
	const char *address = s->settings->address;
	union address only;

	s->port = s->settings->port;
	s->one_address = address[0] != '\0';
	if (s->one_address)
		return offer_place_resolve(address, s->family, &only) ? -1 : listen_at(s, &only);
	if (s->family != AF_INET6 && listen_at(s, &any4))
		return -1;
	/* A host may have no IPv6. */
	if (s->family != AF_INET && listen_at(s, &any6) && s->family == AF_INET6)
		return -1;
	return 0;
}

void listeners_close(struct server *s)
{
	while (s->listener_count > 0)
		close_fd(s->listeners[--s->listener_count]);
}

void listeners_set_tos(const struct server *s, unsigned tos)
{
	union address at;

	for (unsigned i = 0; i < s->listener_count; i++) {
		socklen_t len = sizeof at;

		if (getsockname(s->listeners[i], &at.sa, &len) ||
		    tos_set(s->listeners[i], at.sa.sa_family, tos ? tos : 1))
			log_warn("set the type of service: %m");
	}
}
