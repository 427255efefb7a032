/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/sizing.h"

#include "lane/memlock.h"
#include "lane/pool.h"
#include "protocol/message.h"

enum {
	LANES_LEAST = 2, /* so that one lane reads while the other one waits for its wire */
	LANES_MOST = 8,
	RDMA_LANE_MBITS = 50000,
	TCP_LANE_MBITS = 25000,
	STALL_US = 2000,
	LAN_US = 400, /* twice a round trip of 0.2 ms */
	RTT_MOST_US = 1000000,
	UNKNOWN_MBITS = 10000,
	WINDOW_LEAST = 6 << 20,
	WINDOW_MOST = 256 << 20,
	WINDOW_MOST_LONG = 1 << 30,
	MEMORY_PART = 32,
	BLOCK_USUAL = 256 << 10,
	BLOCK_LARGE = 1 << 20,
	LARGE_MBITS = 100000,
	DEPTH_GOOD = 8, /* with fewer blocks, reading, the wire and writing wait for each other */
	DEPTH_LEAST = 4,
	DEPTH_MOST = 128,
	DEPTH_MOST_LONG = 512,
};

static uint64_t clamp_u64(uint64_t n, uint64_t least, uint64_t most)
{
	return n < least ? least : n > most ? most : n;
}

static bool is_long(const struct sizing_for *f)
{
	return f->rtt_us > LAN_US;
}

static uint64_t choose_window(const struct sizing_for *f)
{
	uint64_t most = is_long(f) ? WINDOW_MOST_LONG : WINDOW_MOST;
	uint64_t us = STALL_US + clamp_u64(f->rtt_us, LAN_US, RTT_MOST_US);

	if (f->memory && f->memory / MEMORY_PART < most)
		most = f->memory / MEMORY_PART;
	if (most < WINDOW_LEAST)
		most = WINDOW_LEAST;
	/* 1 Mbit/s is one bit per microsecond. */
	return clamp_u64((f->rate ? f->rate : UNKNOWN_MBITS) * us / 8, WINDOW_LEAST, most);
}

/* The depth that the window asks for and that locked memory allows. */
static uint32_t choose_depth(const struct sizing_for *f, unsigned lanes, uint32_t block_size)
{
	uint64_t depth = choose_window(f) / lanes / block_size, locked = f->lockable / lanes;

	if (f->rdma && f->lockable != UINT64_MAX) {
		locked =
			locked > LANE_RINGS ? (locked - LANE_RINGS) / pool_bytes(1, block_size) : 0;
		if (locked < depth)
			depth = locked;
	}
	return (uint32_t)clamp_u64(depth, DEPTH_LEAST, is_long(f) ? DEPTH_MOST_LONG : DEPTH_MOST);
}

static uint32_t choose_block_size(const struct sizing_for *f, unsigned lanes)
{
	/* On a long link, usual blocks may be too many for one lane. */
	bool wants_large = f->rate >= LARGE_MBITS ||
			   (is_long(f) && choose_window(f) / lanes / BLOCK_USUAL > DEPTH_MOST);

	return wants_large && choose_depth(f, lanes, BLOCK_LARGE) >= DEPTH_GOOD ? BLOCK_LARGE
										: BLOCK_USUAL;
}

static unsigned choose_lanes(const struct sizing_for *f)
{
	uint64_t per_lane = f->rdma ? RDMA_LANE_MBITS : TCP_LANE_MBITS;
	uint64_t lanes = clamp_u64((f->rate + per_lane - 1) / per_lane, LANES_LEAST, LANES_MOST);
	uint64_t most = clamp_u64(f->cores / 2, LANES_LEAST, LANES_MOST);
	uint64_t links = clamp_u64(f->links, 1, OFFER_MAX);

	if (f->rdma && f->lockable != UINT64_MAX) {
		uint64_t room = f->lockable / lane_bytes(DEPTH_GOOD, BLOCK_USUAL);

		most = clamp_u64(room, LANES_LEAST, most);
	}
	lanes = clamp_u64(lanes, LANES_LEAST, most);
	return (unsigned)((lanes + links - 1) / links * links);
}

void sizing_choose(const struct sizing_for *f, struct sizing *s)
{
	if (!s->lanes)
		s->lanes = choose_lanes(f);
	if (!s->block_size)
		s->block_size = choose_block_size(f, s->lanes);
	if (!s->depth)
		s->depth = choose_depth(f, s->lanes, s->block_size);
}
