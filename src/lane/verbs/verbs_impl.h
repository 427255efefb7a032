/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_VERBS_VERBS_IMPL_H
#define LANE_VERBS_VERBS_IMPL_H

/*
 * A wire over RDMA verbs. Shared by verbs.c (moves blocks), verbs_op.c (the operation that moves
 * them), verbs_equip.c (queues and memory), verbs_prepare.c (memory that is registered before),
 * verbs_connect.c (connects), verbs_options.c (times and retries), verbs_event.c (events of the
 * connection manager), verbs_async.c (events of adapters), verbs_channel.c (event channels),
 * verbs_fail.c (why a wire broke) and verbs_listen.c (finds callers). For the files of this folder
 * only.
 *
 * A wire has one RC queue pair on one librdmacm id, one completion queue for both directions, and
 * one protection domain. Blocks go as SENDs into posted receives, and no memory is registered for
 * remote access. So a peer can do nothing but fill a block that we posted.
 *
 * With RDMA_OP_WRITE_* the source writes block n into slot n % depth of the sink's pool, and
 * announces it with an immediate or a small message. For that the sink's pool is registered for
 * remote writes, and no other memory of either end. Each wire whose peer got a key registers it
 * anew, and only that wire's queue pair can use the key. The sink sends the key in a LANE_HELLO,
 * after it has heard its peer's. The peer can then change a block even after it was handed up:
 * hence wire.exposed, and the copies of everything that is parsed (seal.h). All a malicious peer
 * gains is that the stored bytes differ from the bytes of the digest, in a file whose bytes and
 * digest it chooses anyway; --verify reads what is stored.
 */

#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include "base/fail.h"
#include "host/adapter.h"
#include "lane/connect.h"
#include "lane/patience.h"
#include "lane/pool.h"
#include "lane/verbs/verbs_connect.h"
#include "lane/wire.h"

/*
 * Why a receiver is never found not ready. So rnr_retry_count is 0 on rxe and siw, where a mistake
 * in this must show, and the simulated adapters end the program. An adapter of hardware may report
 * a receiver that is not ready for reasons of its own, and repeats for as long as that lasts (7).
 *
 * `depth' is what the end's own hello states. The source obeys the smaller of both ends' (lane.h),
 * so what follows holds for each end with its own.
 *
 * Sink. Before it connects or accepts, it posts one receive for the hello, then one for each of its
 * `depth' blocks (or for the message that announces a written block). A source's first message is
 * its hello; all later ones are blocks. The source sends block b only when its credit is at least b
 * - depth + 1, that is, when the sink has put all blocks up to b - depth. The sink posts a block's
 * receive before it grants that block's credit. So one of the `depth' receives is free for b.
 *
 * Source. Before it connects or accepts, it posts one receive for the hello (or two: see below),
 * then `depth' (and a spare) for credits. A sink's first messages are the hellos; all later ones
 * are credits, strictly increasing. Let c be the last credit that the source used. The source
 * posted that message's receive again before it used the credit, so only credits greater than c can
 * be in flight. None is greater than the number of blocks sent, which is at most c + depth.
 * Strictly increasing numbers from c + 1 to c + depth are at most `depth' messages.
 *
 * A connecting sink sends its hello before it knows its peer. If it has a ring to announce, it
 * sends a second hello, with the ring, once it has heard the source's.
 */
enum {
	CREDITS_SPARE = 1,
	SENDS_SPARE = 2, /* beyond depth: the hello, and one spare */
	CREDIT_STRIDE = 16, /* bytes of the ring per credit */
	REAP_MOST = 16, /* most completions to take at a time */
	EVENT_LATE_MS = 2000, /* extra time for the kernel to report that a step timed out */
	SIW_CALL_MS = 2000, /* most time that siw's rdma_connect() may take */
};

struct arrival {
	uint32_t slot;
	uint32_t len; /* bytes that arrived, with the head */
};

/* What verbs_examine() found. */
struct verbs_adapter {
	enum adapter_kind kind;
	bool rxe, siw; /* the kernel's software adapters */
	struct ibv_device_attr device;
	struct ibv_port_attr port;
};

struct verbs {
	struct wire wire;
	struct lane *lane;
	struct pool *pool;
	enum lane_side side;
	enum rdma_op op;
	bool accepting; /* this end accepted the connection */
	uint32_t depth; /* as this end's hello states it; the peer's is wire.depth */
	uint32_t epoch;
	char peer[80]; /* its address and port, for failure messages */

	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct verbs_adapter adapter;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *pool_mr, *ring_mr;
	uint8_t *ring; /* hellos, then credits, then notices */
	size_t ring_bytes;
	bool has_qp; /* rdma_create_qp() succeeded */
	bool established; /* accepting: the event has come */
	/* The attempt failed, and another one may succeed soon, or at once with another queue pair
	 * and another port of this host. */
	bool may_pass, is_stale;
	bool is_refused; /* the peer's program rejected the request, as far as that is known */
	bool peer_knows; /* the attempt failed, and the peer has a better reason */
	/* The attempt before, if its queue pair was stale. It exists until this one has a queue
	 * pair, which otherwise could get the same number. */
	struct verbs *stale;
	bool armed; /* the next completion will make the channel readable */
	/* iWARP: our connection request has no answer yet, so nothing can be freed */
	bool request_pending;
	uint64_t spin_ns;

	/* Posted and not yet reaped; the most that the device grants. */
	uint32_t sends, sends_max;
	uint64_t sends_done; /* reaped */
	bool heard; /* one of the completions just polled is a message of the peer */
	bool sends_inline; /* credits and notices are sent inline, without the ring's memory */
	uint32_t credit_slot; /* else: the next credit slot of the ring to send from */
	unsigned hellos; /* the peer's hellos that arrived */
	struct lane_ring peer_ring; /* source: the sink's pool, if we write into it */

	/* source */
	bool block_sent; /* on this wire: the next three are valid */
	uint64_t next_block; /* number of the next block */
	/* Number of the first block that the adapter may still read; next_block: it reads none. */
	uint64_t first_unacked;
	uint64_t stored; /* the highest credit */
	bool large_sent; /* a block was sent that takes many packets: the first such one */
	uint64_t first_large_block;
	bool credited; /* a credit has arrived */
	struct patience patience;

	/* sink */
	bool *posted; /* by slot: its receive is posted */
	/* ring of depth: blocks that arrived and that nobody has asked for yet */
	struct arrival *arrivals;
	uint32_t arrivals_first, arrivals_count; /* where the ring begins, how many it holds */
	uint64_t granted;

	/* verbs_async.c */
	int async_fd; /* the device's; -1: not joined */
	struct verbs *async_next;
	_Atomic int struck; /* 1 + enum ibv_event_type that breaks the wire; 0: none has come */

	int wake; /* eventfd; readable once the wire is broken */
	atomic_bool broken;
	/* Why the wire is broken, the first cause if there is one; OUT_DONE: not broken. */
	struct failure why;
};

/* Places of hellos in the ring: ours, the peer's, and the second one, which a sink sends or a
 * source receives. */
enum hello_place { HELLO_OUT, HELLO_IN, HELLO_SECOND, HELLO_PLACES };

/* ---- verbs.c ---- */

/* Makes a wire without a connection. verbs_free() frees it in any state. */
int verbs_new(struct lane *l, uint32_t epoch, struct verbs **out);
void verbs_free(struct verbs *v);
/* Sends the hello at this place. The connection must be established. */
int verbs_send_hello(struct verbs *v, enum hello_place place);
/* Posts a list of work requests. */
int verbs_post_sends(struct verbs *v, struct ibv_send_wr *first);
/* Posts an RDMA WRITE of 0 bytes, if the send queue has room. */
int verbs_write_empty(struct verbs *v);
/* Processes completions. If there are none, waits for one until until_ms (0: without limit).
 * Returns -1 if the wire is broken or the lane was aborted. */
int verbs_progress(struct verbs *v, uint64_t until_ms);
/* Processes all completions that are there: those before the end of a connection still count. */
void verbs_reap_last(struct verbs *v);
/* Breaks the wire because a call failed, with its positive or negative errno, or because of an
 * event that has the reason. */
int verbs_call_failed(struct verbs *v, int rc, const char *call);

/* ---- verbs_fail.c ---- */

/* Breaks the wire for this reason, unless it is broken already. The second only reports that the
 * connection has ended, and gives way to a cause. Return -1 with the reason that counts. */
int verbs_fail(struct verbs *v, enum outcome code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));
int verbs_ended(struct verbs *v, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* ---- verbs_options.c ---- */

/* Reads what the adapter of v->id is, into v->adapter. */
int verbs_examine(struct verbs *v);
/* Sets the options of v->id, once v->adapter is known: before the route is resolved (cma.c derives
 * the peer's ACK timeout from ours then), or before the connection is accepted. An option that the
 * kernel does not have stays as it is. */
void verbs_set_options(struct verbs *v);
/* Sets how soon a peer's adapter sends again what finds no receive here. Once the queue pair can
 * send; an adapter that refuses it keeps the connection manager's time. */
void verbs_set_rnr_timer(struct verbs *v);
/* Sets the type of service (base/tos.h) of an id that will connect or listen. Returns 0, or -1 with
 * errno. */
int verbs_set_tos(struct rdma_cm_id *id, unsigned tos);
/* How often the adapter sends again what is not acknowledged. */
uint8_t verbs_retry_count(const struct verbs *v);
/* How often the peer's adapter sends again what finds no receive here. */
uint8_t verbs_rnr_retry_count(const struct verbs *v);

/* ---- verbs_event.c ---- */

struct cm_event {
	enum rdma_cm_event_type what;
	int status;
	struct lane_refusal why; /* REJECTED: code 0 where the peer gave no reason */
};
/* Waits for the next event of v->id. Skips hints: that the network device of the id has another
 * hardware address, as when a bond fails over, and that an earlier connection is forgotten. Returns
 * 0; -1 at the deadline or if the lane was aborted. */
int verbs_next_event(struct verbs *v, uint64_t until_ms, struct cm_event *out);
/* Waits for one kind of event. */
int verbs_expect_event(struct verbs *v, enum rdma_cm_event_type want, uint64_t until_ms);
/* Processes the events of a wire that is connected, or accepts. Returns -1 if one breaks it. */
int verbs_take_events(struct verbs *v);
/* Fail because of an event or an errno; return -1. */
int verbs_event_failed(struct verbs *v, const struct cm_event *e);
int verbs_connect_failed(struct verbs *v, int err);

/* ---- verbs_async.c ---- */

/* Has events of v->id's device passed to v. */
int verbs_async_join(struct verbs *v);
/* To be called before anything of v is destroyed; may be called in any state. */
void verbs_async_leave(struct verbs *v);
/* Takes the events of v's device, and passes them to the wires that they concern. */
void verbs_async_read(struct verbs *v);
/* Fails v because of the event that has struck it; returns -1. */
int verbs_async_failed(struct verbs *v);

/* ---- verbs_equip.c ---- */

/* Gives v->id, which has a device, its queues and memory, and posts all receives. */
int verbs_equip(struct verbs *v);
/* The queues alone, or the memory alone. */
int verbs_equip_queues(struct verbs *v);
int verbs_equip_memory(struct verbs *v);
/* Moves the memory of another wire of the lane, which will move no block, to v, if it is registered
 * with the same device and v has none. If `from' (NULL: nothing is moved) has a queue pair, it must
 * be freed before v. */
void verbs_take_memory(struct verbs *v, struct verbs *from);
/* Undoes verbs_equip(); may be called in any state. */
void verbs_unequip(struct verbs *v);
/* The part of verbs_unequip() that does not wait: afterwards the adapter uses none of our memory.
 */
void verbs_release_memory(struct verbs *v);
/* Posts a receive. into NULL: for a message without bytes. */
int verbs_post_recv(struct verbs *v, uint64_t wr_id, struct ibv_sge *into);
/* Posts the receive of one credit. */
int verbs_post_credit(struct verbs *v, uint32_t slot);
/* Addresses in the ring: hellos, credits, notices. */
uint8_t *verbs_hello_at(const struct verbs *v, enum hello_place place);
uint8_t *verbs_credit_at(const struct verbs *v, uint32_t slot);
uint8_t *verbs_notice_at(const struct verbs *v, uint32_t slot);

/* The purpose of a work request, kept in its wr_id: a failed completion has no other valid
 * field. */
enum verbs_work {
	WORK_WRITE_BLOCK = 1, /* the WRITE of a WRITE and SEND; WORK_SEND_BLOCK is its SEND */
	WORK_SEND_BLOCK,
	WORK_SEND_CREDIT,
	WORK_SEND_HELLO,
	WORK_WRITE_EMPTY,
	WORK_RECV_BLOCK,
	WORK_RECV_CREDIT,
	WORK_RECV_HELLO,
};
static inline uint64_t work_id(enum verbs_work work, uint32_t slot)
{
	return (uint64_t)work << 32 | slot;
}

/* ---- verbs_prepare.c ---- */

/* prepared, and *prepared: NULL if there is none. */
void verbs_drop_prepared(struct verbs **prepared);
/* Gives v the memory, if it is of v's device. If not, frees it: memory of two devices at a time
 * could exceed the limit of locked memory. */
void verbs_take_prepared(struct verbs *v, struct verbs **prepared);
/* Leaves the memory of v, an attempt that failed, to the next one, which may come soon: registering
 * gigabytes takes seconds. A ring whose key the peer may have is not kept (see above). Keeps this
 * thread's failure. */
void verbs_keep_memory(struct verbs *v, struct verbs **prepared);

/* ---- verbs_channel.c ---- */

/* An event channel, or NULL with errno; a confined process has those that it reserved. No id may be
 * left when one is closed. NULL: nothing is closed. */
struct rdma_event_channel *verbs_channel_open(void);
void verbs_channel_close(struct rdma_event_channel *c);
/* Whether verbs_reserve() was called; then, what verbs_present() returned. */
bool verbs_is_reserved(bool *present, char *why, size_t size);

/* ---- verbs_connect.c ---- */

/* Gives v an event channel and an id. */
int verbs_open_id(struct verbs *v);

/* ---- verbs_op.c ---- */

static inline bool verbs_writes(const struct verbs *v)
{
	return v->op != RDMA_OP_SEND;
}
/* Source: a connecting sink sends its hello a second time, with the ring. */
static inline bool verbs_expects_two_hellos(const struct verbs *v)
{
	return v->side == LANE_SOURCE && v->accepting && verbs_writes(v);
}
/* "send", "write-imm" */
const char *verbs_op_text(enum rdma_op op);
/* For messages: what the work request with this wr_id was for. */
const char *verbs_work_text(uint64_t id);
/* Returns -1 with a failure if this device cannot do the operation. */
int verbs_op_check(struct verbs *v);
/* Entries of the send queue per block. */
uint32_t verbs_sends_a_block(const struct verbs *v);
/* Source: posts b as soon as the send queue has room. */
int verbs_send_block(struct verbs *v, const struct block *b);
/* Sink: posts the receive for the block of this slot, or for its announcement. */
int verbs_post_block(struct verbs *v, uint32_t slot);
/* Sink: the address in our memory of slot 0, with the page of its head. */
uint64_t verbs_ring_at(const struct verbs *v);
/* Sink: processes a successful completion of that receive. */
int verbs_block_arrived(struct verbs *v, const struct ibv_wc *wc);
/* Sink: the completion opcode of a block's receive. */
enum ibv_wc_opcode verbs_block_opcode(const struct verbs *v);

/* ---- verbs_listen.c ---- */

struct verbs_caller {
	struct rdma_cm_id *id;
	struct rdma_event_channel *events; /* its own, because another thread uses the listener's */
	struct lane_private request;
};
/* Frees c, and its id and channel if c still owns them, without an answer to the caller. */
void verbs_caller_free(struct verbs_caller *c);

#endif
