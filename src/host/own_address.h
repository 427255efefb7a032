/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_OWN_ADDRESS_H
#define HOST_OWN_ADDRESS_H

/* Which of this host's addresses lead to another one, by its interfaces and routes. */

#include "base/address.h"

/* Is a in the network of one of this host's interfaces? */
bool address_near(const union address *a);
/* This host's addresses in whose networks a is, at most max; returns how many. */
unsigned addresses_near(const union address *a, union address *own, unsigned max);
/* The address of this host that the routes take to reach `to': 0, or -1 with errno.  Sends
 * nothing. */
int address_toward(const union address *to, union address *from);

#endif
