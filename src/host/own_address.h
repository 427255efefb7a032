/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_OWN_ADDRESS_H
#define HOST_OWN_ADDRESS_H

/* Which of this host's addresses lead to another host, by its interfaces and routes. */

#include "base/address.h"

/* Whether a is in the network of one of this host's interfaces. */
bool own_network_contains(const union address *a);
/* This host's addresses whose networks contain a, at most max; returns their number. */
unsigned own_addresses_near(const union address *a, union address *own, unsigned max);
/* The local address that routing chooses to reach `to'. Returns 0, or -1 with errno. Sends
 * nothing. */
int own_address_toward(const union address *to, union address *from);

#endif
