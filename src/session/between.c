/* SPDX-License-Identifier: Apache-2.0 */
#include "session/between.h"

#include <string.h>
#include "base/fail.h"
#include "session/session_impl.h"

int between_agree(const struct msg_hello hellos[static 2], struct between *out)
{
	struct terms terms;

	*out = (struct between){0};
	if (terms_agree(&hellos[0], &hellos[1], &terms))
		return -1;
	out->lanes = terms.lanes;
	out->depth = terms.depth;
	out->block_size = terms.block_size;
	out->seals = terms.encrypt == ENCRYPT_ON;
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < 2; i++)
			memcpy(out->keys[side].nonces[i], hellos[i].nonce, NONCE_SIZE);
	return 0;
}

static const struct lane_key *find_key(const struct between *b, enum lane_side side)
{
	return &b->keys[side == LANE_SOURCE ? 0 : 1];
}

void between_write_hello(const struct between *b, enum lane_side to, unsigned lane, uint32_t epoch,
			 uint8_t hello[static LANE_HELLO_SIZE])
{
	struct lane_hello h = {
		.from = to == LANE_SOURCE ? LANE_SINK : LANE_SOURCE,
		.seals = b->seals,
		.session = find_key(b, to)->session,
		.lane = (uint16_t)lane,
		.epoch = epoch,
		.block_size = b->block_size,
		.depth = (uint16_t)b->depth,
	};

	lane_hello_sign(&h, find_key(b, to));
	lane_hello_encode(&h, hello);
}

int between_check_hello(const struct between *b, enum lane_side from, unsigned lane, uint32_t epoch,
			const uint8_t hello[static LANE_HELLO_SIZE])
{
	struct lane_hello h;

	if (lane_hello_decode(hello, &h) || lane_hello_verify(&h, find_key(b, from)))
		return -1;
	/* The other end has had its hello when this answer comes, so each must have the same. */
	if (!h.accepting || h.from != from || h.session != find_key(b, from)->session ||
	    h.lane != lane || h.epoch != epoch || h.block_size != b->block_size ||
	    h.depth != b->depth || h.ring.at != 0 || (h.seals && !b->seals))
		return fail_as(OUT_PROTOCOL,
			       "lane hello: its role, session, lane, epoch or sizes do not match");
	return 0;
}
