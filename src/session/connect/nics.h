/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_NICS_H
#define SESSION_CONNECT_NICS_H

/* The links of this host that lanes may take: RDMA ports and network devices behind its addresses.
 */

#include "host/adapter.h"
#include "session/connect/places.h"
#include "session/connect/sizing.h"

/* Active ports of adapters, each once. */
struct port_list {
	unsigned count;
	struct adapter ports[OFFER_MAX];
};
/* The index of the port behind a local address, which is added if it is new; -1: none. */
int nics_find_port(struct port_list *l, const union address *local);

/*
 * What there is at this host to size lanes for.  rdma: RDMA may be used; then the links are all
 * ports of the best rate behind the addresses of `rules', but at most `rails' (0: no bound), else
 * the fastest network device.
 */
void nics_survey(const struct offer_rules *rules, bool rdma, unsigned rails,
		 struct sizing_for *out);

#endif
