/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_BETWEEN_H
#define SESSION_BETWEEN_H

/*
 * What a third party needs to connect the lanes of two ends that both only accept: it knows their
 * secret and has seen their HELLOs and OFFERs. It is the connecting end of both connections of a
 * lane, and passes the bytes behind the hellos on as they are.
 */

#include "lane/head.h"
#include "protocol/message.h"

struct between {
	unsigned lanes;
	uint32_t depth, block_size;
	bool seals; /* every wire is encrypted */
	/* of the connections to the source, and to the sink; the caller wipes them */
	struct lane_key keys[2];
};

/* Fills in all but the secrets and the sessions: what both ends compute from these HELLOs, the
 * source's first. Returns 0, or -1 with the failure that both ends have, too. */
int between_agree(const struct msg_hello hellos[static 2], struct between *out);
/* The hello to this end. */
void between_write_hello(const struct between *b, enum lane_side to, unsigned lane, uint32_t epoch,
			 uint8_t hello[static LANE_HELLO_SIZE]);
/* Checks the answer of that end. Returns 0, or -1 with a failure. */
int between_check_hello(const struct between *b, enum lane_side from, unsigned lane, uint32_t epoch,
			const uint8_t hello[static LANE_HELLO_SIZE]);

#endif
