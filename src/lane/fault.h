/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_FAULT_H
#define LANE_FAULT_H

/*
 * Faults to order, for tests: fault.c reads them from SLUICE_FAULT, fault_none.c (every
 * build that is not made with -Dfaults=true) has none and compiles to nothing.
 *
 *	damage:lane=L,block=N,times=T   flip a bit of block N's data after it was sealed,
 *	                                the first T times that it is sent
 *	break:lane=L,block=N,times=T    break the wire right after block N was handed to it
 *	stall:lane=L,block=N,ms=M       wait M ms before sending block N for the first time
 *	norejoin:lane=L                 once the lane was broken to order, each call for another
 *	                                RDMA connection of it fails
 *	take:lane=L,times=T             the accepting end drops a connection of the lane right
 *	                                after it has sent its hello, the first T times
 *	bound:by=N                      what a peer can make this end keep is bounded by an N-th
 * With every=E (of the first three) the same happens to the blocks N + E, N + 2E and so on.
 * Several are joined by ';'.  Numbers of blocks are of lane_send(), from 0, in the source.  times
 * is 1 when it is left out, and 0 there means always.  What can't be understood ends the program:
 * a test that orders no fault must not pass.
 */

#include "lane/lane.h"

/* Before b goes to the wire, each time; may change its data, until it is sent again (an
 * adapter may read it at any time until then). */
void fault_before(unsigned lane, struct block *b);
/* True: break the wire now. */
bool fault_after(unsigned lane, const struct block *b);
/* True: an RDMA connection for this lane must not come about. */
bool fault_call(unsigned lane);
/* True: the connection that this end has just accepted for this lane must fail. */
bool fault_take(unsigned lane);
/* Bytes that a peer can make this end keep, or fewer. */
size_t fault_bound(size_t bytes);

#endif
