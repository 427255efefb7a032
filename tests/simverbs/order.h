/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_ORDER_H
#define SIMVERBS_ORDER_H

/*
 * Faults that a test orders. SIMVERBS_FAULT holds rules with semicolons between them; each counts
 * for itself, in one process:
 *
 *   fail:NAME,n=N,errno=E    the N-th call of an exported function fails (n=0: each)
 *   status:n=N,is=S          the N-th send of the process completes with status S, and its queue
 *                            pair breaks
 *   event:NAME,n=N,as=A,status=S    the N-th event NAME (ESTABLISHED) becomes event A (numbers of
 *                            enum rdma_cm_event_type)
 *   lose:KIND,n=N            the N-th message KIND (REQ, REP, RTU, DREQ) of the connection manager
 *                            is lost; its sender repeats it, if a real one does
 *   silent:n=N               from the N-th send on, the queue pairs of the process hear and answer
 *                            nothing
 *
 * A rule that is not understood ends the program.
 */

#include <stdbool.h>

/* The errno with which this call is to fail; 0: none. */
int order_failure(const char *function);
/* The status of this send; 0: none is ordered. */
int order_status(void);
/* Changes the event if that is ordered. */
void order_event(int *what, int *status);
bool order_loss(const char *kind);
/* Counts a send. Returns true if the process is silent from now on. */
bool order_silence(void);
bool order_is_silent(void);

/* At the beginning of an exported function. */
#define FAIL_IF_ORDERED(result)                                                                    \
	do {                                                                                       \
		int ordered = order_failure(__func__);                                             \
		if (ordered) {                                                                     \
			errno = ordered;                                                           \
			return result;                                                             \
		}                                                                                  \
	} while (0)

#endif
