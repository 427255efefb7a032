/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_ADDRESS_LOCAL_H
#define SESSION_ADDRESS_LOCAL_H

/*
 * This host's addresses: which of them to offer to a peer, and which of a peer's offer are
 * worth dialing.
 */

#include <stdbool.h>
#include <stdint.h>
#include "base/address.h"
#include "session/message.h"

/* Equal on two processes of one host and network namespace, and says nothing else of it. */
uint64_t host_id(void);
/* Of the running kernel: size bytes of it. 0, or -1: it is not known. */
int boot_id(char *to, size_t size);

bool address_is_loopback(const union address *a);
bool address_is_link_local(const union address *a);
/* Ports and zones left out. */
bool address_same(const union address *a, const union address *b);
union address address_with_port(const union address *a, unsigned port);
union address address_loopback(int family, unsigned port);
/* Does one of this host's interfaces have a in its network? */
bool address_near(const union address *a);
/* This host's addresses in whose networks a is, at most max. */
unsigned addresses_near(const union address *a, union address *own, unsigned max);
/* The address of this host that the routes take to come to a place: 0, or -1.  Sends nothing. */
int address_toward(const union address *to, union address *from);

struct offer_rules {
	const char *only; /* --address: this one and no other; "" */
	const union address *control; /* this end's address of the control connection, or NULL */
	bool same_host; /* the peer is on this host: loopback may be offered */
	int family; /* AF_INET, AF_INET6, 0: both */
};
/* Where lanes may come to, best first.  -1 (OUT_USAGE) when `only' is no address. */
int addresses_to_offer(const struct offer_rules *rules, union address *to, unsigned max,
		       unsigned *count);

struct offer_place place_of(const union address *a, enum transport t, unsigned port);

struct dial_rules {
	const union address *dialed; /* where the control connection went, or NULL */
	bool same_host;
	int family;
	union address from; /* the only address of this host to leave from; family 0: any */
};
/* The places of an offer for this transport that may be dialed, nearest first. */
unsigned places_to_dial(const struct msg_offer *offer, enum transport t,
			const struct dial_rules *rules, union address *to, unsigned max);
/* The same, and their indices in the offer. */
unsigned places_worth(const struct msg_offer *offer, enum transport t,
		      const struct dial_rules *rules, union address *to, unsigned which[],
		      unsigned max);
/* "10.0.0.1:7000, [fd00::1]:7000" */
char *addresses_text(const union address *a, unsigned count, char *to, size_t size);

#endif
