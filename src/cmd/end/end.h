/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_END_H
#define CMD_END_END_H

#include <stdbool.h>
#include "base/address.h"
#include "cmd/end/guest.h"

/*
 * Runs one end of rdcp: forked by a conductor on its own host, or `rdcp --end' that the conductor
 * started over ssh. The end greets, follows its orders, reports only to the conductor, and returns
 * the exit code. Owns both descriptors.
 */
int end_run(int in, int out, bool far);
/* What an end that its conductor forked has from it. */
struct end_shared {
	int clones; /* a socket to the other end, which is on this host too (copy/io/clone.h); 0 */
	/* The address at which rdcpd was reached, where the other end is: known when this end has
	 * its orders, and family 0 then if it is not. NULL: there is no rdcpd. */
	const union address *dialed;
};
/* Before end_run(). */
void end_set_shared(const struct end_shared *s);

/* Before end_run(): makes it an end of rdcpd. far is false then. g is borrowed. */
void end_set_guest(const struct guest *g);

#endif
