/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/sizing.h"

#include "lane/memlock.h"
#include "lane/pool.h"
#include "protocol/message.h"

enum {
	LANES_LEAST = 2, /* so that reading goes on while the wire is waited for */
	LANES_MOST = 8,
	RDMA_LANE_MBITS = 50000,
	TCP_LANE_MBITS = 25000,
	WINDOW_US = 2400,
	WINDOW_LEAST = 6 << 20,
	WINDOW_MOST = 256 << 20,
	MEMORY_PART = 32,
	BLOCK_USUAL = 256 << 10,
	BLOCK_LARGE = 1 << 20,
	LARGE_MBITS = 100000,
	DEPTH_GOOD = 8, /* less leaves reading, the wire and writing waiting for each other */
	DEPTH_LEAST = 4,
	DEPTH_MOST = 128,
	RINGS = 64 << 10, /* as lanes_fit() reckons */
};

static uint64_t within(uint64_t n, uint64_t least, uint64_t most)
{
	return n < least ? least : n > most ? most : n;
}

static uint64_t window(const struct sizing_for *f)
{
	uint64_t most = WINDOW_MOST;

	if (f->memory && f->memory / MEMORY_PART < most)
		most = f->memory / MEMORY_PART;
	if (most < WINDOW_LEAST)
		most = WINDOW_LEAST;
	/* Rates are Mbit/s, so bits a microsecond. */
	return within(f->rate * WINDOW_US / 8, WINDOW_LEAST, most);
}

/* Blocks that a lane may have, for the window and for locked memory. */
static uint32_t depth_for(const struct sizing_for *f, unsigned lanes, uint32_t block_size)
{
	uint64_t depth = window(f) / lanes / block_size, locked = f->lockable / lanes;

	if (f->rdma && f->lockable != UINT64_MAX) {
		locked = locked > RINGS ? (locked - RINGS) / pool_bytes(1, block_size) : 0;
		if (locked < depth)
			depth = locked;
	}
	return (uint32_t)within(depth, DEPTH_LEAST, DEPTH_MOST);
}

static unsigned lanes_for(const struct sizing_for *f)
{
	uint64_t per_lane = f->rdma ? RDMA_LANE_MBITS : TCP_LANE_MBITS;
	uint64_t lanes = within((f->rate + per_lane - 1) / per_lane, LANES_LEAST, LANES_MOST);
	uint64_t most = within(f->cores / 2, LANES_LEAST, LANES_MOST);
	uint64_t links = within(f->links, 1, OFFER_MAX);

	if (f->rdma && f->lockable != UINT64_MAX) {
		uint64_t room = f->lockable / (pool_bytes(DEPTH_GOOD, BLOCK_USUAL) + RINGS);

		most = within(room, LANES_LEAST, most);
	}
	lanes = within(lanes, LANES_LEAST, most);
	return (unsigned)((lanes + links - 1) / links * links);
}

void sizing_choose(const struct sizing_for *f, struct sizing *s)
{
	if (!s->lanes)
		s->lanes = lanes_for(f);
	if (!s->block_size) {
		s->block_size = BLOCK_USUAL;
		if (f->rate >= LARGE_MBITS && depth_for(f, s->lanes, BLOCK_LARGE) >= DEPTH_GOOD)
			s->block_size = BLOCK_LARGE;
	}
	if (!s->depth)
		s->depth = depth_for(f, s->lanes, s->block_size);
}
