/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_RAIL_H
#define SESSION_CONNECT_RAIL_H

/*
 * Rails: ways over RDMA that are used at the same time.
 *
 * Lane 0 tries the ways to the places of an offer one after the other.  Where one has worked, the
 * rails are that one and others at least as fast that share no port with each other, at neither
 * end: two addresses of one adapter are one rail.  Lane i goes over rail i modulo their number.
 * A rail that could not be connected is dead for the session, and its lanes go over the others;
 * TCP is for when none is left.
 */

#include <stdbool.h>
#include "session/connect/places.h"

enum { WAYS_MAX = 2 * OFFER_MAX };

struct rail {
	union address from; /* family 0: whatever the routes say */
	union address to;
	int near; /* number of this end's port that leads there, -1: not known, and so no second
		     rail */
	unsigned far; /* number of the other end's, as it says */
	unsigned rate; /* Mbit/s of the slower end's; 0: not known */
	char device[64]; /* at this end; "" */
	bool dead;
	bool mute; /* it connects, but no block comes through: it stays dead */
};

/* All ways to RDMA places of an offer that may be dialed, best first: at most max. */
unsigned rails_find(const struct msg_offer *offer, const struct dial_rules *rules, struct rail *to,
		    unsigned max);

/* Of ways that were tried in their order, and are dead if they failed, until `worked' did: indices
 * of those that become rails, `worked' first, at most `most'.  Returns how many. */
unsigned rails_choose(const struct rail *ways, unsigned count, unsigned worked, unsigned most,
		      unsigned chosen[]);
/* The fastest first, of equal ones as they were; one whose rate is not known is the slowest. */
void rails_sort(struct rail *ways, unsigned count);
/* Where a lane goes: its own rail, else the next that lives; -1: none does. */
int rail_of_lane(const struct rail *rails, unsigned count, unsigned lane);
/* Which one is dialed for a lane in a round, so many tries after the first: one that lives, or if
 * none does each of them, its own first, since those that were only late would else stay dead for
 * ever. -1: the round is over. */
int rail_to_try(const struct rail *rails, unsigned count, unsigned lane, unsigned tries);
/* "rxe0 to 10.0.0.1:7000" */
char *rail_text(const struct rail *r, char *to, size_t size);

#endif
