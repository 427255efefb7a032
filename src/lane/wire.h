/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_WIRE_H
#define LANE_WIRE_H

/*
 * A wire is one connection under a lane, between the backends (tcp.c, verbs.c) and lane.c;
 * nobody else includes this.
 *
 * A backend embeds struct wire first.  All calls but break_ come from the lane's thread.
 * They return 0, or -1 with a failure saying what broke this wire: the lane is mended then,
 * unless the code is OUT_PROTOCOL, of a peer that can't be right.  OUT_INTEGRITY from recv says
 * that the next block came, but so damaged that its length can't be known.
 *
 * Heads are filled and checked by lane.c (seal.c); the backend moves LANE_HEAD + len bytes
 * from b->data - LANE_HEAD.  It reads of a head only the length, through head.h.
 *
 * A sink's wire owns all blocks of the lane's pool from when it is made: its constructor posts
 * them, before the source can know that it may send.  Later it gets back each block that was put.
 * (The lane holds none then: it makes all of them free before it asks for a wire.)
 */

#include <stdatomic.h>
#include "lane/lane.h"

struct wire;

struct wire_ops {
	/* Source: start sending b.  Its memory stays as it is until credited.  May wait for the
	 * network, taking in credits meanwhile. */
	int (*send)(struct wire *w, struct block *b);
	/* Source: the sink's cumulative credit, at least `least'; waits for it (least 0: doesn't).
	 * Covers only blocks whose memory the wire needs no more.  The wire checks that each
	 * credit message grants more than the one before, and its epoch; lane.c that no more is
	 * granted than was sent.  With none come yet: 0. */
	int (*credit)(struct wire *w, uint64_t least, uint64_t *stored);
	/* Sink: b was put, receive into it again. */
	int (*post)(struct wire *w, struct block *b);
	/* Sink: the next block that came, its head and data in place, unchecked, and b->len set to
	 * the bytes of data that came.  Waits for it; with `wait' false it gives NULL as soon as
	 * nothing of a next block is at hand (it may wait for the rest of one that has begun). */
	int (*recv)(struct wire *w, bool wait, struct block **b);
	/* Sink: tell the source now that the first `stored' blocks are stored; more than the last
	 * time.  How often is lane.c's to decide.  Must not wait for the source to take it in. */
	int (*grant)(struct wire *w, uint64_t stored);
	/* Any thread, under the lane's lock: every call on this wire, now and later, returns -1
	 * soon.  Must not wait, nor call the lane. */
	void (*break_)(struct wire *w);
	/* See how short rtt_us is by now; NULL: it does not change. */
	void (*look)(struct wire *w);
	/* Free everything, at once and without waiting for the peer; NULL is not passed. */
	void (*close)(struct wire *w);
};

/* For wires: a message of the peer's came.  In the lane's thread. */
void lane_heard_wire(struct lane *l);

struct wire {
	const struct wire_ops *ops;
	bool exposed; /* sink: the source can change a block, its head too, at any time */
	uint32_t window; /* blocks under way that are of use, at most; 0: no matter how many */
	_Atomic uint64_t heard; /* sink: grows with all that comes, parts of blocks too */
	uint32_t rtt_us; /* the shortest round trip that was seen; 0: not known */
	uint32_t mtu; /* of the network device under it; 0: not known */
	char name[96]; /* for people: "tcp 10.0.0.1:7000" */
};

#endif
