/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_OFFER_PLACE_H
#define SESSION_CONNECT_OFFER_PLACE_H

/* Places where lanes can be reached: which of this host's addresses to offer to a peer, and which
 * places of a peer's offer to dial. */

#include <stdbool.h>
#include <stdint.h>
#include "base/address.h"
#include "protocol/message.h"

/* Resolves the argument of --address, a host's name or an address. family: AF_INET, AF_INET6 or 0.
 * Returns 0, or -1 with OUT_START. */
int offer_place_resolve(const char *text, int family, union address *to);

struct offer_rules {
	const char *only; /* --address: offer only this one; "": any */
	const union address *control; /* this end's address of the control connection, or NULL */
	bool same_host; /* the peer is on this host: loopback may be offered */
	/* Also IPv4's link-local addresses, as two ports have that a cable joins. Not for TCP: of
	 * other interfaces a management controller may have the other end. */
	bool rdma;
	int family; /* AF_INET, AF_INET6, 0: both */
};
/* Addresses to accept lanes at, best first. -1 (OUT_START) if `only' is unknown. */
int offer_place_find_own(const struct offer_rules *rules, union address *to, unsigned max,
			 unsigned *count);

struct offer_place offer_place_make(const union address *a, enum transport t, unsigned port);

struct dial_rules {
	const union address *dialed; /* the address of the control connection, or NULL */
	bool same_host;
	int family;
	union address from; /* the only local address to connect from; family 0: any */
};
/* The places of an offer that may be dialed over this transport, nearest first. */
unsigned offer_place_find_dialable(const struct msg_offer *offer, enum transport t,
				   const struct dial_rules *rules, union address *to, unsigned max);
/* The same, with their indices in the offer. */
unsigned offer_place_find_dialable_indexed(const struct msg_offer *offer, enum transport t,
					   const struct dial_rules *rules, union address *to,
					   unsigned indices[], unsigned max);

#endif
