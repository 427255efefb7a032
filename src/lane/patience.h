/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_PATIENCE_H
#define LANE_PATIENCE_H

/*
 * How long a source waits on a wire that brings no credit, or whose sends are not acknowledged.
 *
 * An adapter may not report that its peer is unreachable (siw takes a quarter of an hour; rxe never
 * reports it if a packet of the sink's was lost). The control channel may take another path than
 * the one that is cut. But a sink that is busy grants nothing either. So the source asks the sink
 * over the control channel, a few times within the lane's timeout (lane_setup.ask). While the
 * sink's thread is busy with a block, the wire is not at fault.
 *
 * The peer's adapter acknowledges what arrives also while the sink is busy, because a receive is
 * posted for all that the source may send (lane/verbs/verbs_impl.h). So sends that wait, none of
 * which completes for the timeout, mean a dead path, whatever the sink answers.
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

/* What a wire knows of its peer. */
struct wire_signs {
	uint64_t credits; /* changes with each sign that blocks get through */
	uint64_t acknowledged; /* sends that completed */
	bool awaits_ack; /* a send has not completed */
	bool fresh; /* the wire has brought no credit yet */
};

/* State of one wire; starts with all zeros. */
struct patience {
	uint64_t credits, acknowledged; /* the values at the last look */
	uint64_t looked_ms; /* time of the last look; 0: never */
	uint64_t quiet_ms; /* time without a sign of life */
	uint64_t unacked_ms; /* time in which sends waited and none completed */
	uint32_t busy, idle; /* counts of the sink's answers when the quiet time began */
	unsigned asked; /* questions since then */
};

/* Called while blocks wait for a credit. Returns -1 with a failure when the source must give up the
 * wire. */
int patience_look(struct patience *p, struct lane *l, const struct wire_signs *now);
/* When to call patience_look() again, at the latest (clock_ms). */
uint64_t patience_next(const struct patience *p, const struct lane *l, bool fresh);

#endif
