/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_LANE_IMPL_H
#define LANE_LANE_IMPL_H

/*
 * The private state of a lane: lane.c attaches and mends wires, lane_send.c and lane_recv.c have
 * the calls of each side. For the files of this folder only.
 */

#include <pthread.h>
#include <stdatomic.h>
#include "base/fail.h"
#include "lane/cipher.h"
#include "lane/compress_choice.h"
#include "lane/lane.h"
#include "lane/pool.h"
#include "lane/wire.h"

enum {
	LANE_TIMEOUT_MS = 15000,
	/* After this many wires in a row without one more block stored, none of which lasted for
	 * the timeout, the lane gives up. */
	FUTILE_MAX = 10,
};

/* Only the lane's thread writes these; any thread reads them. */
struct lane_counts {
	_Atomic uint64_t blocks, bytes, resent, ns_fill, ns_send, ns_free, ns_block, ns_store;
	_Atomic uint64_t encrypted, ns_cipher, wire_bytes, ns_compress;
	_Atomic uint64_t window;
	_Atomic uint32_t epochs, rtt_us;
};

struct lane {
	struct lane_setup setup;
	struct pool pool;

	/* Protects the next six. Only the lane's thread changes them, except break_*, so that
	 * thread reads the others without the lock. */
	pthread_mutex_t lock;
	struct wire *wire; /* NULL: none */
	uint32_t epoch; /* of the wire, or of the one that is being made */
	char name[96];
	bool break_ordered; /* lane_break() was called for break_epoch */
	uint32_t break_epoch;
	char break_why[256];

	atomic_bool aborted;
	int abort_fd;

	_Atomic uint32_t stated_depth;
	struct cipher *cipher; /* NULL: wires cannot be encrypted */
	struct compressor *compressor; /* source; NULL: no block is compressed */
	struct compress_choice choice;
	uint64_t waited_ns; /* source: for the wire, since the last block was packed */
	uint64_t packed_ns; /* source: when the last block was packed */
	struct inflater *inflater; /* sink; NULL: no block may be compressed */
	struct block plain; /* sink: the last block that was decompressed */
	bool demands_seal;
	bool sealed; /* the wire, or the last one, is encrypted; from then on all are */
	bool mend_called; /* at least once */
	char why[FAIL_TEXT_MAX]; /* why the last wire broke */
	bool knows_cause; /* that is what broke it: see struct wire */
	unsigned futile; /* wires since the last time one more block was stored */
	uint64_t futile_stored;
	uint64_t stopped_ms; /* see lane_stopped_ms() */
	uint64_t attached_ms;
	uint64_t attached_stored; /* `stored' at that time */
	uint32_t attached_idle; /* `answers_idle' at that time */
	bool barren; /* the last wire was barren: see lane_barren() */
	unsigned barren_count; /* barren wires in a row */
	_Atomic uint64_t sign_ms; /* when the last sign arrived that blocks get through */
	_Atomic uint64_t heard_ms; /* when the last message from the peer arrived over a wire */
	_Atomic uint32_t mtu; /* of the network device under the wire; 0: unknown */
	/* Answers to LANE_CHECK: how often the sink's thread was busy with a block, and how often
	 * it was waiting for one. Both ends count. */
	_Atomic uint32_t answers_busy, answers_idle;
	struct failure fatal; /* what ended the lane; code OUT_DONE: the lane lives */

	/* Of the wire: the most blocks in flight, and the most that help (no more than the first).
	 */
	uint32_t wire_depth, window;

	struct block *lent; /* sink: the block lent to the caller */
	_Atomic uint64_t stored; /* source: blocks credited; sink: blocks put */

	/* source */
	uint64_t sent; /* blocks, each counted once; also the number of the next block */
	uint64_t on_wire; /* blocks below this number went over this wire, or were stored before it
			   */
	struct block *unstored; /* sent and not credited, in order */
	struct block **unstored_end;

	/* sink */
	atomic_bool awaits_wire; /* the lane's thread is in a call that waits for the wire */
	uint64_t granted;
	uint64_t damaged; /* 1 + number of the last block that arrived damaged */
	bool damaged_now; /* that damaged block broke the wire */

	/* Sink: the last block that arrived over an exposed wire. Source: the clear text of a block
	 * while it is encrypted anew. */
	struct block private_copy;

	struct lane_counts counts;
};

/* Adds to a counter that only this thread changes. */
static inline void count_up(_Atomic uint64_t *count, uint64_t by)
{
	uint64_t now = atomic_load_explicit(count, memory_order_relaxed);

	atomic_store_explicit(count, now + by, memory_order_relaxed);
}

/* Returns 0 while the lane lives, else -1 with the failure that ended it. */
int lane_alive(struct lane *l);
/* Ends the lane with this thread's failure; returns -1. */
int lane_die(struct lane *l);
/* Records this thread's failure as the reason why the wire broke. Returns 0 if the lane may be
 * mended, else -1. */
int lane_broke(struct lane *l);
/* Ensures that the lane has a wire, and sends again over a new one every block that needs it.
 * Returns 0 or -1. */
int lane_join(struct lane *l);

/* Provides the memory of l->private_copy or l->plain. If it cannot, the lane dies. */
int lane_make_block(struct lane *l, struct block *b);

/* Updates the shortest round-trip time from the wire. */
void lane_update_rtt(struct lane *l);

/* lane_send.c: frees the blocks that are stored. Returns -1 if the peer's number is impossible:
 * less than before, or more than `sent'. */
int lane_apply_credit(struct lane *l, uint64_t stored, uint64_t sent);
/* Sends every block that is not known to be stored over the new wire. */
int lane_resend(struct lane *l);

#endif
