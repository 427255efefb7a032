/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_RAIL_H
#define SESSION_CONNECT_RAIL_H

/*
 * Rails: RDMA connections over different adapter ports that are used at the same time.
 *
 * Lane 0 tries the ways to the places of an offer one after the other. Once one has worked, the
 * rails are that way and others that are at least as fast and share no port with each other at
 * either end: two addresses of one adapter are one rail. Lane i uses rail i modulo their number. A
 * rail that could not be connected is dead until a connection or a knock works, and its lanes use
 * the others. TCP is used only when no rail is left.
 */

#include <stdbool.h>
#include "session/connect/offer_place.h"

enum { WAYS_MAX = 2 * OFFER_MAX };

struct rail {
	union address from; /* family 0: as routing chooses */
	union address to;
	/* Number of this end's port on this way; -1: unknown, and therefore no second rail. */
	int near;
	unsigned far; /* number of the other end's port, as the offer says */
	unsigned rate; /* of the slower end, in Mbit/s; 0: unknown */
	char device[64]; /* at this end; or "" */
	bool software; /* this end's adapter is known to be software */
	bool dead;
	bool mute; /* it connects, but no block gets through: it stays dead */
};

/* All ways to RDMA places of an offer that may be dialed, best first, at most max. */
unsigned rails_find(const struct msg_offer *offer, const struct dial_rules *rules, struct rail *to,
		    unsigned max);

/* Chooses rails. `ways' were tried in order and are dead if they failed, up to `worked', which
 * succeeded. Stores the indices of those that become rails, `worked' first, at most `most'. Returns
 * their number. */
unsigned rails_choose(const struct rail *ways, unsigned count, unsigned worked, unsigned most,
		      unsigned chosen[]);
/* Sorts by rate, the fastest first. The sort is stable; an unknown rate counts as the slowest. */
void rails_sort(struct rail *ways, unsigned count);
/* The rail of a lane: its own, or the next one that is not dead; -1: all are dead. */
int rail_of_lane(const struct rail *rails, unsigned count, unsigned lane);
/* Returns the rail to dial for a lane in one round, after `tries' earlier tries: one that is not
 * dead. If all are dead, each of them in turn, the lane's own first; otherwise rails that were only
 * late would stay dead for ever. -1: the round is over. */
int rail_to_try(const struct rail *rails, unsigned count, unsigned lane, unsigned tries);
/* "rxe0 to 10.0.0.1:7000" */
char *rail_text(const struct rail *r, char *to, size_t size);

#endif
