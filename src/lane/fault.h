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
 *	stall:lane=L,block=N,ms=M       wait M ms before sending block N
 * Several are joined by ';'.  Numbers are of lane_send(), in the source.
 */

#include "lane/lane.h"

struct wire;
/* Before b goes to the wire; may change its data. Undo with fault_after(). */
void fault_before(unsigned lane, struct block *b);
/* True: break the wire now. */
bool fault_after(unsigned lane, struct block *b);

#endif
