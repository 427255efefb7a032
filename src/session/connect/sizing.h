/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_SIZING_H
#define SESSION_CONNECT_SIZING_H

/*
 * How many lanes, how deep, of what blocks, where the user does not say: what one end proposes
 * in its HELLO; the smaller of two counts.
 *
 * The window (lanes x depth x block size) bounds the rate: R = min(B, window / (RTT + block / B)),
 * which holds on siw with delays to 100 ms.  In a LAN the round trip is not what has to be bridged
 * (100 Gb/s x 20 us: 0.24 MiB) but a stall of reading or writing: 2 ms of the link, and twice a
 * round trip of 0.2 ms, so 2.4 ms of it; never below the 6 MiB that fit into the usual 8 MiB
 * of locked memory, nor above 256 MiB or a 32nd of the machine's memory.
 *
 * Lanes are threads that read, hash and write, too: one does 50 Gb/s of that over RDMA (a cached
 * file is read at 12 GB/s, a new one is written at 1.3 to 10, XXH3 takes 1/40 ns a byte), 25 over
 * TCP, where a core copies about 40 Gb/s at most.  They are 2 to 8, and at most half the cores; for
 * several links at once (rails) at least one each, and a multiple of them.
 *
 * Blocks are 256 KiB, a cell, which stays in cache between reading, hashing and sending.  From
 * 100 Gb/s on files go past the page cache, and what an SSD is asked for at a time matters: 1 MiB,
 * if eight of them are left for each lane.
 *
 *	link        window    RDMA, no limit   8 MiB of locked memory  TCP
 *	to 20 Gb/s, unknown
 *	            6 MiB     2 x 12 x 256 K   2 x 12 x 256 K          2 x 12 x 256 K
 *	25 Gb/s     7.2       2 x 14 x 256 K   2 x 14 x 256 K          2 x 14 x 256 K
 *	100 Gb/s    29        2 x 14 x 1 M     2 x 15 x 256 K          4 x 28 x 256 K
 *	200 Gb/s    57        4 x 14 x 1 M     3 x 10 x 256 K          8 x 28 x 256 K
 *	400 Gb/s    114       8 x 14 x 1 M     3 x 10 x 256 K          8 x 14 x 1 M
 */

#include <stdbool.h>
#include <stdint.h>

struct sizing_for {
	uint64_t rate; /* Mbit/s of all links together; 0: not known */
	unsigned links; /* that lanes will be spread over, at least 1 */
	bool rdma;
	unsigned cores; /* that this process may use */
	uint64_t lockable; /* RDMA: bytes; UINT64_MAX: no limit */
	uint64_t memory; /* bytes of this machine; 0: not known */
};

struct sizing {
	unsigned lanes;
	uint32_t depth, block_size;
};

/* Fill in what is 0 in *s; what is not is the user's, and stays. */
void sizing_choose(const struct sizing_for *f, struct sizing *s);

#endif
