/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_ORDER_H
#define SIMVERBS_ORDER_H

/*
 * Faults that a test orders. SIMVERBS_FAULT holds rules with semicolons between them; each counts
 * for itself, in one process:
 *
 *   fail:NAME,n=N,errno=E    the N-th call of an exported function fails (n=0: each), with what it
 *                            returns then: NULL or -1 and errno, an errno, or -E of
 *                            ibv_poll_cq(). One that destroys or acknowledges has done so all the
 *                            same. Functions without a result, and those that return a name or a
 *                            port, cannot fail. ibv_reg_mr counts the calls of ibv_reg_mr_iova2,
 *                            too. NAME relaxed: ibv_reg_mr() with relaxed ordering;
 *                            huge: of memory for which the program wants huge pages
 *   relax:                   each region has relaxed ordering
 *   regions:                 prints the size and access of each region
 *   writes:                  prints the size of each RDMA WRITE
 *   delay:NAME,n=N,late=MS   the N-th call of one of these functions takes so long (n=0: each)
 *   status:n=N,is=S          the N-th send of the process completes with status S, and its queue
 *                            pair breaks
 *   receive:n=N,is=S         the N-th receive of the process that something arrives in completes
 *                            with status S, and its queue pair breaks; S = 100: without an error
 *                            and without any bytes, as one of rxe was seen to
 *   event:NAME,n=N,as=A,status=S    the N-th event NAME (ESTABLISHED) becomes event A (numbers of
 *                            enum rdma_cm_event_type)
 *                            late=MS: it comes that much later; twice=1: it comes two times;
 *                            first=B: event B comes right before it
 *   lose:KIND,n=N            the N-th message KIND (REQ, REP, RTU, REJ, DREQ, DREP) of the
 *                            connection manager is lost; its sender repeats it, if a real one does
 *   stale:n=N                the N-th request that comes to the process is from a queue pair in
 *                            timewait, and so are all that it sends until that is over (cm_end.c)
 *   reuse:n=0                new queue pairs get the numbers of freed ones at once
 *   async:NAME,n=N,for=MS    with the N-th send of the process comes the asynchronous event NAME
 *                            (QP_FATAL, PORT_ERR, any of <infiniband/verbs.h>), with what causes
 *                            it; PORT_ERR: the port is down for that long (0: for ever)
 *   silent:n=N               from the N-th send on, the queue pairs of the process hear and answer
 *                            nothing
 *
 * A rule that is not understood, also one with an unknown name, ends the program. A child of a fork
 * reads them anew. The file SIMVERBS_MARK, if the environment has that, exists once a rule has been
 * followed.
 */

#include <stdbool.h>

/* The errno with which this call is to fail; 0: none. */
int order_failure(const char *function);
/* Whether each region has relaxed ordering, or is printed. */
bool order_relaxed(void);
bool order_told(void);
/* Whether each RDMA WRITE is printed. */
bool order_writes(void);
/* The status of this send; 0: none is ordered. */
int order_status(void);
enum { ORDERED_EMPTY = 100 };
/* The same of a receive that is polled, or ORDERED_EMPTY. */
int order_receive_status(void);
/* What is ordered of an event. */
struct order_event {
	int as, status; /* what it becomes; the same without a rule */
	int first; /* the event before it; -1: none */
	unsigned late_ms;
	bool twice;
};
struct order_event order_event(int what, int status);
bool order_loss(const char *kind);
/* What is ordered with this send, which is counted. Returns false if nothing is. */
struct order_async {
	int what; /* enum ibv_event_type, or -1 */
	unsigned for_ms;
};
bool order_async(struct order_async *o);
/* Counts a request that came. */
bool order_stale(void);
bool order_reuse(void);
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
