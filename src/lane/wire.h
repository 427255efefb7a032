/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_WIRE_H
#define LANE_WIRE_H

/*
 * A wire is one connection under a lane. This is the interface between the transports (lane/tcp,
 * lane/verbs) and this folder; no file elsewhere includes it.
 *
 * A transport's struct begins with struct wire. All calls but break_ come from the lane's thread.
 * They return 0, or -1 with a failure that says what broke this wire. The lane is then mended,
 * unless the code is OUT_PROTOCOL: the peer violated the protocol. OUT_INTEGRITY from recv says
 * that the next block arrived, but so damaged that its length is unknown.
 *
 * The lane fills and checks the heads (seal.c). The transport moves LANE_HEAD + len bytes from
 * b->data - LANE_HEAD. It reads nothing of a head but the length, through head.h.
 *
 * A sink's wire owns all blocks of the lane's pool from the moment it is made: its constructor
 * posts them, before the source can know that it may send. Later the wire gets back each block that
 * was put. (Before the lane asks for a wire, it makes all its blocks free, so it holds none.)
 */

#include <stdatomic.h>
#include "lane/lane.h"

struct wire;

struct wire_ops {
	/* Source: start sending b. Its memory must not change until it is credited. May wait for
	 * the network, and may process credits meanwhile. */
	int (*send)(struct wire *w, struct block *b);
	/* Source: wait until the sink's cumulative credit is at least `least', and store the credit
	 * in *stored. With least 0 it does not wait; 0 if no credit has arrived. The credit covers
	 * only blocks whose memory the wire no longer needs. The wire checks the epoch of each
	 * credit message, and that it grants more than the one before. The lane checks that no more
	 * is granted than was sent. */
	int (*credit)(struct wire *w, uint64_t least, uint64_t *stored);
	/* Sink: b was put; receive into it again. */
	int (*post)(struct wire *w, struct block *b);
	/* Sink: the next block that arrived, its head and data in place and unchecked, with b->len
	 * set to the number of data bytes that arrived. Waits for it. With `wait' false, sets *b to
	 * NULL if nothing of a next block has arrived yet (it may wait for the rest of a block that
	 * has begun). */
	int (*recv)(struct wire *w, bool wait, struct block **b);
	/* Sink: report to the source now that the first `stored' blocks are stored; stored is
	 * higher than the last time. The lane decides how often. Must not wait until the source
	 * takes it in. */
	int (*grant)(struct wire *w, uint64_t stored);
	/* Any thread, under the lane's lock. Every call on this wire, now and later, soon returns
	 * -1. Must neither wait nor call the lane. */
	void (*break_)(struct wire *w);
	/* Update rtt_us. NULL: rtt_us does not change. */
	void (*update_rtt)(struct wire *w);
	/* Free everything at once, without waiting for the peer. w is not NULL. */
	void (*close)(struct wire *w);
};

/* Called by a wire when a message from the peer arrived. In the lane's thread. */
void lane_heard_wire(struct lane *l);

struct wire {
	const struct wire_ops *ops;
	bool exposed; /* sink: the source can change a block and its head at any time */
	uint32_t window; /* more blocks in flight than this do not help; 0: no such bound */
	uint32_t depth; /* most blocks in flight, as the peer's hello states it; 0: no hello */
	bool sealed; /* its blocks are encrypted: one of the hellos demands that */
	_Atomic uint64_t received; /* sink: grows with all that arrives, even a part of a block */
	uint32_t rtt_us; /* the shortest round-trip time measured; 0: unknown */
	uint32_t mtu; /* of the network device under the wire; 0: unknown */
	/* The failure of its calls is what broke it, and not only that the other end has ended it.
	 */
	bool knows_cause;
	char name[96]; /* for messages: "tcp 10.0.0.1:7000" */
};

#endif
