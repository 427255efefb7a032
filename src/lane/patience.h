/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_PATIENCE_H
#define LANE_PATIENCE_H

/*
 * How long a source waits on a wire that brings no credit.
 *
 * An adapter may not report that its peer is unreachable (siw takes a quarter of an hour; rxe never
 * reports it if a packet of the sink's was lost). The control channel may take another path than
 * the one that is cut. But a sink that is busy grants nothing either. So the source asks the sink
 * over the control channel, a few times within the lane's timeout (lane_setup.ask). While the
 * sink's thread is busy with a block, the wire is not at fault.
 *
 * A source gives up early on a wire that has never brought a credit: large packets may get lost
 * where the small packets of the handshake came through. This requires an answer from the sink;
 * without one, the control channel may be just as slow.
 *
 * Only time in which the lane's thread looks counts, and at most a quarter of the limit at a time.
 * So a stopped process does not count its own pause against its peer.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/lane.h"

enum {
	/* limit for a wire that never brought a credit, if the lane's timeout is longer */
	FIRST_CREDIT_MS = 5000,
	CHECKS = 4, /* checks within the time after which the source gives up a wire */
};

/* State of one wire; starts with all zeros. */
struct patience {
	uint64_t signs; /* the value at the last look */
	uint64_t looked_ms; /* time of the last look; 0: never */
	uint64_t quiet_ms; /* time without a sign of life */
	uint32_t busy, idle; /* counts of the sink's answers when the quiet time began */
	unsigned asked; /* questions since then */
};

/*
 * Called while blocks wait for a credit. signs: a number that changes with each sign of life of the
 * wire. fresh: the wire has brought no credit yet. Returns -1 with a failure when the source must
 * give up the wire.
 */
int patience_look(struct patience *p, struct lane *l, uint64_t signs, bool fresh);
/* When to call patience_look() again, at the latest (clock_ms). */
uint64_t patience_next(const struct patience *p, const struct lane *l, bool fresh);

#endif
