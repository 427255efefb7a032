/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_VERBS_VERBS_H
#define LANE_VERBS_VERBS_H

/*
 * A wire over RDMA verbs, between verbs.c (moving blocks), verbs_op.c (the operation that moves
 * them), verbs_connect.c (coming by a connection) and verbs_listen.c (finding callers); nobody
 * else includes this.
 *
 * One RC queue pair on one librdmacm id, one completion queue for both directions, one
 * protection domain.  Blocks go as SENDs into posted receives and nothing is registered for
 * remote access, so a peer can do nothing but fill a block that we posted.
 *
 * With RDMA_OP_WRITE_* the source writes block n into slot n % depth of the sink's pool, and an
 * immediate or a small message says so.  The sink's pool, and nothing else of any end, is
 * registered for that: anew for each wire, whose queue pair alone can use the key, told in the
 * LANE_HELLO of a sink that has heard its peer's.  Then the peer can change a block also after it
 * was handed up: hence wire.exposed, and copies of what is parsed (seal.h).  What it gains is to
 * have other bytes stored than the digest was made of, in a file whose bytes and digest are its to
 * say anyway; --verify reads what is stored.
 */

#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include "base/fail.h"
#include "lane/connect.h"
#include "lane/patience.h"
#include "lane/pool.h"
#include "lane/verbs/verbs_connect.h"
#include "lane/wire.h"

/*
 * Why a receiver is never found not ready, and rnr_retry_count can be 0:
 *
 * Sink.  Before connect or accept it posts one receive for the hello, then one for each of
 * its `depth' blocks (or for what tells of a block that was written).  A source's first message is
 * its hello, all further ones are blocks, and it sends block b only when its credit is at least b -
 * depth + 1: when the sink has put all blocks up to b - depth.  The sink posts a block's receive
 * before it grants that block's credit.  So of the `depth' receives one is free for b.
 *
 * Source.  Before connect or accept it posts one receive for the hello (or for two: below),
 * then `depth' (and a spare) for credits.  A sink's first messages are those, all further ones
 * are credits, strictly increasing.  Let c be the last credit that the source used.  It posted that
 * message's receive again before it used it, so all that can be on the way are credits
 * greater than c; and none is greater than the number of blocks sent, which is at most
 * c + depth.  Strictly increasing numbers from c + 1 to c + depth are at most `depth'
 * messages.
 *
 * A sink that connects says hello before it knows to whom.  Where it has a ring to tell, it says
 * hello again, with the ring, once it has heard the source's.
 */
enum {
	CREDITS_SPARE = 1,
	SENDS_SPARE = 2, /* beyond depth: the hello, and one more */
	CREDIT_STRIDE = 16, /* a credit's place in the ring */
	REAP_MOST = 16, /* completions taken at a time */
	EVENT_LATE_MS = 2000, /* of the kernel, saying that a step's time is over */
	SIW_CALL_MS = 2000, /* most that siw's rdma_connect() may take */
};

struct arrival {
	uint32_t slot;
	uint32_t len; /* bytes that came, head included */
};

struct verbs {
	struct wire wire;
	struct lane *lane;
	struct pool *pool;
	enum lane_side side;
	enum rdma_op op;
	bool accepting; /* we took a call */
	uint32_t depth, epoch;
	char peer[80]; /* its address and port, for failures */

	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *pool_mr, *ring_mr;
	uint8_t *ring; /* hellos, credits, then notices */
	size_t ring_bytes;
	bool paired; /* the id has a queue pair */
	bool armed; /* the next completion makes the channel readable */
	bool calling; /* iWARP: the call is not answered, and nothing can be freed before it is */
	uint64_t spin_ns;

	uint32_t sends, sends_max; /* posted and not yet reaped; as many as were granted */
	bool inlined; /* credits and notices need no memory of the ring */
	uint32_t credit_slot; /* the next one of the ring to send from, if not */
	unsigned hellos; /* of the peer's that came */
	struct lane_ring there; /* source: the sink's pool, if we write into it */

	/* source */
	bool begun; /* a block was sent on this wire: the three numbers count */
	uint64_t next; /* number of the next block */
	uint64_t let_go; /* of the first block that the adapter still reads */
	uint64_t stored; /* the highest credit */
	uint64_t large; /* number + 1 of the first block of many packets; 0: none was sent */
	bool credited; /* a credit has come */
	struct patience patience;

	/* sink */
	bool *posted; /* by slot: the adapter has it */
	struct arrival *came; /* blocks that nobody has asked for yet: a ring of depth */
	uint32_t came_at, came_left; /* where it begins, how many there are */
	uint64_t granted;

	int wake; /* eventfd, readable once broken */
	atomic_bool broken;
	struct failure why; /* what broke it first; OUT_DONE: nothing did */
};

/* Of hellos in the ring: ours, the peer's, and the one that a sink says or a source hears then. */
enum hello_place { HELLO_OUT, HELLO_IN, HELLO_AGAIN, HELLO_PLACES };

/* ---- verbs.c ---- */

/* A wire without a connection; verbs_free() frees it, in whatever state it is. */
int verbs_new(struct lane *l, uint32_t epoch, struct verbs **out);
void verbs_free(struct verbs *v);
/* Send the hello that is at this place; the connection must be established. */
int verbs_send_hello(struct verbs *v, enum hello_place place);
/* Post a list of them. */
int verbs_post_sends(struct verbs *v, struct ibv_send_wr *first);
/* Send no bytes to nowhere, if there is room. */
int verbs_send_nothing(struct verbs *v);
/* Take in what completed; nothing: wait for it, until until_ms (0: for ever).  -1 when the wire
 * is broken or the lane was aborted. */
int verbs_progress(struct verbs *v, uint64_t until_ms);
/* Break the wire for this reason, or for the one it already has. */
int verbs_fail(struct verbs *v, enum outcome code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

/* ---- verbs_equip.c ---- */

/* Give v->id, which has a device, its queues and memory, and post all receives. */
int verbs_equip(struct verbs *v);
/* The opposite of that; nothing where there is nothing. */
void verbs_strip(struct verbs *v);
/* The part of it that waits for nobody: no memory is the adapter's any more. */
void verbs_release_memory(struct verbs *v);
/* Post a receive; into NULL: of a message without bytes. */
int verbs_post_recv(struct verbs *v, uint64_t wr_id, struct ibv_sge *into);
/* Post the receive of one credit. */
int verbs_post_credit(struct verbs *v, uint32_t slot);
/* Places in the ring: hellos, credits, notices. */
uint8_t *verbs_hello_at(const struct verbs *v, enum hello_place place);
uint8_t *verbs_credit_at(const struct verbs *v, uint32_t slot);
uint8_t *verbs_notice_at(const struct verbs *v, uint32_t slot);

/* What a work request was for is in its wr_id: a completion in error tells nothing else. */
enum verbs_work {
	WORK_WRITE_BLOCK = 1, /* of the two parts of a write and a send; the other is: */
	WORK_SEND_BLOCK,
	WORK_SEND_CREDIT,
	WORK_SEND_HELLO,
	WORK_SEND_NOTHING,
	WORK_RECV_BLOCK,
	WORK_RECV_CREDIT,
	WORK_RECV_HELLO,
};
static inline uint64_t work_id(enum verbs_work work, uint32_t slot)
{
	return (uint64_t)work << 32 | slot;
}

/* ---- verbs_op.c ---- */

static inline bool verbs_writes(const struct verbs *v)
{
	return v->op != RDMA_OP_SEND;
}
/* Source: a sink that calls says its hello a second time, with the ring. */
static inline bool verbs_hears_twice(const struct verbs *v)
{
	return v->side == LANE_SOURCE && v->accepting && verbs_writes(v);
}
/* "send", "write-imm" */
const char *verbs_op_text(enum rdma_op op);
/* Why this device can't do it: -1 with a failure. */
int verbs_op_check(struct verbs *v);
/* Places of the send queue that a block takes. */
uint32_t verbs_sends_a_block(const struct verbs *v);
/* Source: post b, when there is room for it. */
int verbs_send_block(struct verbs *v, const struct block *b);
/* Sink: post the receive that block goes into, or that tells of it. */
int verbs_post_block(struct verbs *v, uint32_t slot);
/* Sink: where slot 0 begins, with the page of its head, in our memory. */
uint64_t verbs_ring_at(const struct verbs *v);
/* Sink: that receive ended well. */
int verbs_block_came(struct verbs *v, const struct ibv_wc *wc);
/* Sink: what a receive of a block ends with. */
enum ibv_wc_opcode verbs_block_opcode(const struct verbs *v);

/* ---- verbs_listen.c ---- */

struct verbs_caller {
	struct rdma_cm_id *id;
	struct rdma_event_channel *events; /* its own: the listener's is another thread's */
	struct lane_private says;
};
/* Free c, and id and channel if they are still its own, without a word to the caller. */
void verbs_caller_free(struct verbs_caller *c);

#endif
