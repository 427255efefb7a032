/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_PATIENCE_H
#define LANE_PATIENCE_H

/*
 * How long a source waits on a wire that brings no credit.
 *
 * An adapter need not report a peer that it cannot reach (siw: for a quarter of an hour; rxe: not
 * at all where a packet of the sink's got lost), and the control channel need not take the path
 * that is cut.  But a sink that rests grants nothing either.  So the source asks it, over the
 * control channel, a few times within the lane's timeout (lane_setup.ask); while the sink's thread
 * is busy with a block that it has, the wire is not to blame.
 *
 * A wire that has never brought a credit is given up early: large packets may be lost where the
 * small ones of the handshake came through.  That takes an answer of the sink, since without one
 * the control channel may be as slow.
 *
 * Only time in which the lane's thread looks counts, at most a quarter of the limit at a time: a
 * stopped process does not take its own pause for its peer's.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/lane.h"

enum {
	FIRST_CREDIT_MS = 5000, /* for a wire that has never brought one; or the lane's timeout */
	CHECKS = 4, /* in the time after which a wire is given up */
};

/* Of one wire; all zeros at first. */
struct patience {
	uint64_t signs; /* as given at the last look */
	uint64_t looked_ms; /* 0: never */
	uint64_t quiet_ms; /* without a sign */
	uint32_t busy, idle; /* the sink's answers when it began to be quiet */
	unsigned asked; /* since then */
};

/*
 * Look while blocks wait for a credit.  signs: a number that changes with each sign of life of the
 * wire.  fresh: no credit has come on it.  -1 with a failure when the wire is to be given up.
 */
int patience_look(struct patience *p, struct lane *l, uint64_t signs, bool fresh);
/* When to look again at the latest (clock_ms). */
uint64_t patience_next(const struct patience *p, const struct lane *l, bool fresh);

#endif
