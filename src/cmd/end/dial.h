/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_DIAL_H
#define CMD_END_DIAL_H

/* How rdsend comes to its rdrecv: names, addresses, patience. */

#include "base/address.h"
#include "session/channel/channel.h"

enum { ADDRESSES_MAX = 16 };

/* The addresses of a host's name, an address, or an address with a zone; family: AF_INET, AF_INET6
 * or 0.  How many, or -1 with OUT_START when there is no such host. */
int dial_resolve(const char *host, unsigned port, int family,
		 union address to[static ADDRESSES_MAX]);

struct dial_opts {
	const char *host;
	unsigned port;
	int family;
	int timeout_ms; /* --connect-timeout: for all tries together */
	int silence_ms; /* --timeout: how long a handshake may stand still */
	const struct psk *key;
};
/*
 * Connect to a rdrecv with this key: all addresses, again after 10 ms and then up to every 100 ms
 * until the time is over (OUT_CONNECT), while the connection is refused, or closed before either
 * has proved that it has the key.  OUT_TIMEOUT: it is accepted, and nobody answers.
 * *dialed is the address that answered.
 */
int dial_connect(const struct dial_opts *o, struct channel **out, union address *dialed);

#endif
