/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_FAULT_H
#define LANE_FAULT_H

/*
 * Fault injection for tests. fault.c reads the faults from SLUICE_FAULT. fault_none.c has none and
 * compiles to nothing; every build without -Dfaults=true uses it.
 *
 *	damage:lane=L,block=N,times=T   flip a bit of block N's data after it was sealed,
 *	                                the first T times that it is sent
 *	break:lane=L,block=N,times=T    break the wire right after block N was handed to it
 *	stall:lane=L,block=N,ms=M       wait M ms before sending block N for the first time
 *	norejoin:lane=L                 once an injected fault broke the lane, each further
 *	                                attempt to connect it over RDMA fails
 *	take:lane=L,times=T             the accepting end drops a connection of the lane right
 *	                                after it has sent its hello, the first T times
 *	bound:by=N                      divide by N the bound on what a peer can make this
 *	                                end keep
 *	rekey:by=N                      a key encrypts at most N bytes
 *
 * With every=E, the first three also apply to blocks N + E, N + 2E and so on. ';' separates several
 * faults. Block numbers count the source's calls of lane_send(), from 0. times defaults to 1; 0
 * means always. A specification that cannot be parsed aborts the program, because a test that
 * injects no fault must not pass.
 */

#include "lane/lane.h"

/* Called each time before b goes to the wire. May change b's data. The change stays until b is sent
 * again, because an adapter may read the data at any time until then. */
void fault_before_send(unsigned lane, struct block *b);
/* Takes back the change to b that its last sending made. */
void fault_restore(unsigned lane, struct block *b);
/* True: the caller must break the wire now. */
bool fault_after_send(unsigned lane, const struct block *b);
/* True: an RDMA connection for this lane must fail. */
bool fault_connect(unsigned lane);
/* True: the connection that this end just accepted for this lane must fail. */
bool fault_accept(unsigned lane);
/* Returns the bytes that a peer can make this end keep, or fewer if a fault says so. */
size_t fault_bound(size_t bytes);
/* Returns the bytes that one key may encrypt, or fewer if a fault says so. */
uint64_t fault_rekey(uint64_t bytes);

#endif
