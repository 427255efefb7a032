/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_SIZING_H
#define SESSION_CONNECT_SIZING_H

/*
 * How many lanes of which depth and block size, if the user does not specify them: what one end
 * proposes in its HELLO. The smaller of both ends' values applies.
 *
 * The window (lanes x depth x block size) bounds the rate: R = min(B, window / (RTT + block / B)).
 * This holds on siw with delays up to 100 ms. In a LAN the window must bridge not the round trip
 * (100 Gb/s x 20 us: 0.24 MiB) but a stall of reading or writing: 2 ms of the link's rate, and
 * twice a round trip of 0.2 ms, so 2.4 ms in total. It is never less than the 6 MiB that fit into
 * the usual 8 MiB of locked memory, nor more than 256 MiB or a 32nd of the machine's memory.
 *
 * On a link that is known to be long, it is 2 ms and the round-trip time, and up to 1 GiB, which is
 * 400 Gb/s for 20 ms. The round-trip time is known if the control channel is a TCP connection; over
 * ssh it is not. Both ends measure it, and the smaller window applies. A link of unknown rate
 * counts as 10 Gb/s.
 *
 * Lanes are also the threads that read, hash and write. One does 50 Gb/s of that over RDMA (reading
 * a cached file: 12 GB/s; writing a new one: 1.3 to 10 GB/s; XXH3: 1/40 ns per byte), and 25 Gb/s
 * over TCP, where a core copies about 40 Gb/s at most. There are 2 to 8 lanes, and at most half as
 * many as cores. With several links (rails) there is at least one lane per link, and their number
 * is a multiple of the links.
 *
 * Blocks are 256 KiB, one cell, which stays in cache between reading, hashing and sending. From 100
 * Gb/s on, files bypass the page cache, and the size of each request to an SSD matters: then blocks
 * are 1 MiB, if that leaves eight of them per lane. They are so, too, where the window is more than
 * 128 blocks of 256 KiB per lane.
 *
 *	link        window    RDMA, no limit   8 MiB of locked memory  TCP
 *	to 20 Gb/s, unknown
 *	            6 MiB     2 x 12 x 256 K   2 x 12 x 256 K          2 x 12 x 256 K
 *	25 Gb/s     7.2       2 x 14 x 256 K   2 x 14 x 256 K          2 x 14 x 256 K
 *	100 Gb/s    29        2 x 14 x 1 M     2 x 15 x 256 K          4 x 28 x 256 K
 *	200 Gb/s    57        4 x 14 x 1 M     3 x 10 x 256 K          8 x 28 x 256 K
 *	400 Gb/s    114       8 x 14 x 1 M     3 x 10 x 256 K          8 x 14 x 1 M
 *	100 Gb/s, 10 ms
 *	            143       2 x 71 x 1 M     2 x 15 x 256 K          4 x 35 x 1 M
 */

#include <stdbool.h>
#include <stdint.h>

struct sizing_for {
	uint64_t rate; /* Mbit/s of all links together; 0: unknown */
	unsigned links; /* links to spread lanes over, at least 1 */
	bool rdma;
	unsigned cores; /* cores that this process may use */
	uint64_t lockable; /* RDMA: bytes that may be locked; UINT64_MAX: unlimited */
	uint64_t memory; /* bytes of this machine; 0: unknown */
	uint32_t rtt_us; /* the shortest round-trip time to the peer; 0: unknown */
};

struct sizing {
	unsigned lanes;
	uint32_t depth, block_size;
};

/* Fills in the fields of *s that are 0. Others are the user's and stay. */
void sizing_choose(const struct sizing_for *f, struct sizing *s);

#endif
