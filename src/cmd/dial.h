/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_DIAL_H
#define CMD_DIAL_H

/* How rdsend comes to its rdrecv: names, addresses, patience. */

#include "lane/connect.h"
#include "session/channel.h"

enum { ADDRESSES_MAX = 16 };

/* The addresses of a host's name, an address, or an address with a zone; family: AF_INET, AF_INET6
 * or 0.  How many, or -1 with OUT_START when there is no such host. */
int resolve(const char *host, unsigned port, int family, union address to[static ADDRESSES_MAX]);

/* Connect to a rdrecv with this key: all addresses, again every 100 ms until the time is over
 * (OUT_CONNECT).  *dialed is the address that answered. */
int dial(const char *host, unsigned port, int family, int timeout_ms, const struct psk *key,
	 struct channel **out, union address *dialed);

#endif
