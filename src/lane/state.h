/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_STATE_H
#define LANE_STATE_H

/*
 * A lane from within: lane.c (wires and their mending), source.c and sink.c (the calls of each
 * side); nobody else includes this.
 */

#include <pthread.h>
#include <stdatomic.h>
#include "base/fail.h"
#include "lane/lane.h"
#include "lane/pool.h"
#include "lane/wire.h"

enum {
	LANE_TIMEOUT_MS = 15000,
	/* So many wires in a row without one more block stored, none of which lasted for the
	 * timeout, are enough. */
	FUTILE_MAX = 10,
};

/* Written by the lane's thread alone, read by any. */
struct lane_counts {
	_Atomic uint64_t blocks, bytes, resent, ns_fill, ns_send, ns_free, ns_block, ns_store;
	_Atomic uint64_t window;
	_Atomic uint32_t epochs, rtt_us;
};

struct lane {
	struct lane_setup setup;
	struct pool pool;

	pthread_mutex_t lock; /* of the next six; all but told* change in the lane's thread only,
			       * which so reads them without it */
	struct wire *wire; /* NULL: none */
	uint32_t epoch; /* of the wire, or of the one being made */
	char name[96];
	bool told; /* lane_break() came, for told_epoch */
	uint32_t told_epoch;
	char told_why[256];

	atomic_bool aborted;
	int abort_fd;

	bool begun; /* a wire was asked for before */
	char why[FAIL_TEXT_MAX]; /* what broke the last one */
	unsigned futile; /* wires since a block more was stored */
	uint64_t futile_stored;
	uint64_t attached_ms;
	uint64_t attached_stored; /* `stored' then */
	uint32_t attached_idle; /* `answers_idle' then */
	bool barren; /* the last wire: see lane_barren() */
	unsigned barren_row; /* so many in a row */
	_Atomic uint64_t sign_ms; /* the last sign that blocks get through */
	_Atomic uint64_t heard_ms; /* something of the peer's last came over a wire */
	_Atomic uint32_t mtu; /* of the network device under the wire; 0: not known */
	/* to LANE_CHECK: the sink's thread was busy with a block, or waited for one; at both ends
	 */
	_Atomic uint32_t answers_busy, answers_idle;
	struct failure fatal; /* the lane's end; code OUT_DONE: it lives */

	struct block *lent; /* sink: to the caller */
	_Atomic uint64_t stored; /* source: credited; sink: put */

	/* source */
	uint64_t sent; /* blocks, each once; the next one's number */
	struct block *unstored; /* sent and not credited, in order */
	struct block **unstored_end;

	/* sink */
	atomic_bool at_wire; /* its thread is in a call that waits for the wire */
	uint64_t granted;
	uint64_t damaged; /* 1 + number of the block that came damaged last */
	bool damaged_now; /* and that is what broke the wire */
	struct block copy; /* of the records that came last over an exposed wire */

	struct lane_counts counts;
};

/* Add to a count that only this thread changes. */
static inline void count_up(_Atomic uint64_t *count, uint64_t by)
{
	uint64_t now = atomic_load_explicit(count, memory_order_relaxed);

	atomic_store_explicit(count, now + by, memory_order_relaxed);
}

/* 0 while the lane lives; else -1 with the failure that ended it. */
int lane_alive(struct lane *l);
/* This thread's failure ends the lane; -1. */
int lane_die(struct lane *l);
/* This thread's failure broke the wire: 0 when the lane may be mended, else -1. */
int lane_broke(struct lane *l);
/* Have a wire, with everything sent again that must be: 0 or -1. */
int lane_join(struct lane *l);

/* How short is a round trip by now? */
void lane_look(struct lane *l);

/* source.c: stored blocks are free again; -1 when the peer can't mean that. */
int lane_apply_credit(struct lane *l, uint64_t stored);
/* Send all that is not known to be stored over a new wire. */
int lane_resend(struct lane *l);

#endif
