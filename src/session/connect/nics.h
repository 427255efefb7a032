/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_NICS_H
#define SESSION_CONNECT_NICS_H

/* The links of this host that lanes may use: RDMA ports, and network devices of its addresses. */

#include "host/adapter.h"
#include "session/connect/offer_place.h"
#include "session/connect/sizing.h"

/* Active ports of adapters, each once. */
struct port_list {
	unsigned count;
	struct adapter ports[OFFER_MAX];
};
/* Returns the index of the port that has this local address, adding the port if it is new; -1: no
 * port. */
int nics_find_port(struct port_list *l, const union address *local);

/*
 * The links of this host for which to size lanes. With rdma, RDMA may be used, and the links are
 * all ports of the highest rate that have addresses of `rules', at most `rails' of them (0: no
 * bound). Otherwise it is the fastest network device.
 */
void nics_find_links(const struct offer_rules *rules, bool rdma, unsigned rails,
		     struct sizing_for *out);

#endif
