/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/hello.h"

#include "base/fail.h"

void hello_write_ring(const struct lane *l, uint32_t epoch, bool accepting,
		      const struct lane_key *key, const struct lane_ring *ring,
		      uint8_t to[static LANE_HELLO_SIZE])
{
	struct lane_hello h = {
		.from = (uint8_t)lane_side_of(l),
		.accepting = accepting,
		.seals = lane_demands_seal(l),
		.session = key->session,
		.lane = (uint16_t)lane_index(l),
		.epoch = epoch,
		.block_size = lane_block_size(l),
		.depth = (uint16_t)lane_stated_depth(l),
		.ring = *ring,
	};

	lane_hello_sign(&h, key);
	lane_hello_encode(&h, to);
}

void hello_write(const struct lane *l, uint32_t epoch, bool accepting, const struct lane_key *key,
		 uint8_t to[static LANE_HELLO_SIZE])
{
	hello_write_ring(l, epoch, accepting, key, &(struct lane_ring){0}, to);
}

int hello_check_ring(const struct lane *l, uint32_t epoch, bool accepting,
		     const struct lane_key *key, const uint8_t from[static LANE_HELLO_SIZE],
		     struct lane_ring *ring, struct hello_terms *terms)
{
	struct lane_hello h;

	if (lane_hello_decode(from, &h) || lane_hello_verify(&h, key))
		return -1;
	/* The MAC is right, so from here on a wrong field is the peer's protocol error. */
	if (h.accepting != accepting)
		return fail_as(OUT_PROTOCOL, "lane hello: from the wrong end of the connection");
	if (h.from == lane_side_of(l))
		return fail_as(OUT_PROTOCOL, "lane hello: both ends are %ss",
			       h.from == LANE_SOURCE ? "source" : "sink");
	if (h.session != key->session)
		return fail_as(OUT_PROTOCOL, "lane hello: session %016llx, expected %016llx",
			       (unsigned long long)h.session, (unsigned long long)key->session);
	if (h.lane != lane_index(l) || h.epoch != epoch)
		return fail_as(OUT_PROTOCOL,
			       "lane hello: lane %u epoch %u, expected lane %u epoch %u", h.lane,
			       h.epoch, lane_index(l), epoch);
	if (h.block_size != lane_block_size(l) || h.depth > lane_depth(l))
		return fail_as(OUT_PROTOCOL,
			       "lane hello: %u blocks of %u bytes, expected at most %u of %u",
			       h.depth, h.block_size, lane_depth(l), lane_block_size(l));
	*ring = h.ring;
	*terms = (struct hello_terms){h.depth, h.seals};
	return 0;
}

int hello_check(const struct lane *l, uint32_t epoch, bool accepting, const struct lane_key *key,
		const uint8_t from[static LANE_HELLO_SIZE], struct hello_terms *terms)
{
	struct lane_ring ring = {0};

	if (hello_check_ring(l, epoch, accepting, key, from, &ring, terms))
		return -1;
	if (ring.at != 0)
		return fail_as(OUT_PROTOCOL, "lane hello: unexpected ring");
	return 0;
}
