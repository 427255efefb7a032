/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_DIAL_H
#define CMD_END_DIAL_H

/* How rdsend connects to its rdrecv: resolves the name, tries the addresses, retries. */

#include "base/address.h"
#include "session/channel/channel.h"

enum { ADDRESSES_MAX = 16 };

/* Resolves a host's name, an address, or an address with a zone. family: AF_INET, AF_INET6 or 0.
 * Returns the number of addresses, or -1 with OUT_START if the host is unknown. */
int dial_resolve(const char *host, unsigned port, int family,
		 union address to[static ADDRESSES_MAX]);

struct dial_opts {
	const char *host;
	unsigned port;
	int family;
	unsigned tos; /* base/tos.h */
	int timeout_ms; /* --connect-timeout: for all attempts together */
	int silence_ms; /* --timeout: how long a handshake may make no progress */
	const struct psk *key;
	const char *listener; /* the program that listens there, for messages */
	enum caller_role caller;
	const char *user; /* of a conductor */
};
/*
 * Connects to a listener with this key. Tries all addresses, again after 10 ms and then at growing
 * intervals up to 100 ms, until the time is over (OUT_CONNECT), as long as the connection is
 * refused, or closed before either side has proved that it has the key. OUT_TIMEOUT: the connection
 * was accepted, but the peer does not answer. *dialed is the address that answered.
 */
int dial_connect(const struct dial_opts *o, struct channel **out, union address *dialed);
/* Connects, without a handshake: tries all addresses once. Returns a descriptor, or -1 with
 * OUT_CONNECT or OUT_START. */
int dial_tcp(const struct dial_opts *o, uint64_t deadline_ms);

#endif
