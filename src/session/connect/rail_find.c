/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the ways to the places of an offer. */

#include <stdio.h>
#include <string.h>
#include "host/own_address.h"
#include "session/connect/nics.h"
#include "session/connect/rail.h"

enum { OWN_MAX = 4 }; /* addresses of this host that are in the network of a place */

static unsigned min_known_rate(unsigned a, unsigned b)
{
	return a && (a < b || !b) ? a : b;
}

/* Fills in this end's port at `from': its number, its device, and the lower rate. */
static void complete_rail(struct rail *r, const union address *from, struct port_list *ports)
{
	int at = nics_find_port(ports, from);

	r->near = at;
	if (at < 0)
		return;
	r->software = ports->ports[at].software;
	r->rate = min_known_rate(r->rate, ports->ports[at].rate_mbits);
	snprintf(r->device, sizeof r->device, "%s", ports->ports[at].device);
}

/* Adds ways from other ports in the same network. Routing sends everything through one of them. */
static unsigned find_beside(const struct rail *routed, const union address *from,
			    struct port_list *ports, struct rail *to, unsigned max)
{
	union address own[OWN_MAX];
	unsigned n = own_addresses_near(&routed->to, own, OWN_MAX), found = 0;

	for (unsigned i = 0; i < n && found < max; i++) {
		struct rail *r = &to[found];

		if (address_same(&own[i], from) || address_same(&own[i], &routed->to))
			continue;
		*r = *routed;
		r->from = own[i];
		complete_rail(r, &own[i], ports);
		found += r->near >= 0 && r->near != routed->near;
	}
	return found;
}

unsigned rails_find(const struct msg_offer *offer, const struct dial_rules *rules, struct rail *to,
		    unsigned max)
{
	union address at[OFFER_MAX], from[OFFER_MAX];
	struct port_list ports = {.count = 0};
	unsigned indices[OFFER_MAX];
	unsigned n = offer_place_find_dialable_indexed(offer, TRANSPORT_RDMA, rules, at, indices,
						       OFFER_MAX);
	unsigned routed = n < max ? n : max, found = routed;

	for (unsigned i = 0; i < routed; i++) {
		const struct offer_place *p = &offer->places[indices[i]];

		to[i] = (struct rail){
			.from = {.sa = {.sa_family = AF_UNSPEC}},
			.to = at[i],
			.near = -1,
			.far = p->adapter,
			.rate = p->rate,
		};
		from[i].sa.sa_family = AF_UNSPEC;
		if (own_address_toward(&at[i], &from[i]) == 0)
			complete_rail(&to[i], &from[i], &ports);
	}
	for (unsigned i = 0; i < routed; i++)
		if (to[i].near >= 0 && rules->from.sa.sa_family == AF_UNSPEC)
			found += find_beside(&to[i], &from[i], &ports, to + found, max - found);
	rails_sort(to, found);
	return found;
}
