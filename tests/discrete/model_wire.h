/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISCRETE_MODEL_WIRE_H
#define DISCRETE_MODEL_WIRE_H

/*
 * A wire in virtual time, which does what lane/verbs does with SEND: posted receives, which an
 * arriving block takes in the order of posting; a completion for each block that the adapter has
 * sent and the peer's adapter has acknowledged; credits as messages. It keeps a source from waiting
 * for ever by the same lane/patience.h.
 *
 * Messages take the link in the order in which they were posted, whole, and arrive after the link's
 * latency. Acknowledgements take no bandwidth. A block that finds no posted receive, and a
 * completion too many, end the program: lanes promise that neither happens.
 */

#include <stdbool.h>
#include <stdint.h>
#include "lane/wire.h"

/* What the lanes of a session share. */
struct link_model {
	uint64_t mbits; /* payload in a second, in each direction */
	uint64_t latency_ps; /* one way */
	uint64_t free_ps[LANE_SINK + 1]; /* when the link can take the next message of a side */
};

struct wire_pair;

/* When a connection is lost: nothing arrives any more at either end. */
struct wire_loss {
	uint64_t at; /* when this block is posted; UINT64_MAX: never */
	uint64_t notice_ps; /* so much later the source's adapter reports it; 0: never */
};

/* A connection that both lanes have memory for; the lanes attach its ends. It lives until the end
 * of the program. */
struct wire_pair *wire_pair_new(struct link_model *link, struct lane *source, struct lane *sink,
				uint32_t epoch, const struct wire_loss *loss);
struct wire *wire_pair_end(struct wire_pair *p, enum lane_side side);
void wire_pairs_free(void);

/* When the last connection was lost; 0: none was. */
uint64_t wire_lost_ps(void);
/* Credits that all sinks granted. */
uint64_t wire_grants(void);

#endif
