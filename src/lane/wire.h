/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_WIRE_H
#define LANE_WIRE_H

/*
 * A wire is one connection under a lane, between the backends (tcp.c, verbs.c) and lane.c;
 * nobody else includes this.
 *
 * A backend embeds struct wire first.  All calls but break_ come from the lane's thread.
 * They return 0, or -1 with a failure text saying what broke this wire: the lane is mended
 * then, unless the code is OUT_PROTOCOL of a peer that can't be right.
 *
 * Heads are filled and checked by lane.c (seal.c); the backend moves LANE_HEAD + len bytes
 * from b->data - LANE_HEAD.  It reads of a head only the length, through head.h.
 */

#include "lane/lane.h"

struct wire;

struct wire_ops {
	/* Source: start sending b.  Its memory stays as it is until credited.  May wait for the
	 * network, taking in credits meanwhile. */
	int (*send)(struct wire *w, struct block *b);
	/* Source: the sink's cumulative credit, at least `least'; waits for it (least 0: doesn't). */
	int (*credit)(struct wire *w, uint64_t least, uint64_t *stored);
	/* Sink: give b to the wire to receive into.  At the start all blocks, later every
	 * block that was put. */
	int (*post)(struct wire *w, struct block *b);
	/* Sink: the next block that came (head and data in place, unchecked); waits. */
	int (*recv)(struct wire *w, struct block **b);
	/* Sink: tell the source that the first `stored' blocks are stored; urgent: now (else it
	 * may be put off while further blocks are at hand). */
	int (*grant)(struct wire *w, uint64_t stored);
	/* Any thread: every call on this wire, now and later, returns -1 soon. */
	void (*break_)(struct wire *w);
	/* Free everything, at once and without waiting for the peer; NULL is not passed. */
	void (*close)(struct wire *w);
};

struct wire {
	const struct wire_ops *ops;
	char name[96];  /* for people: "tcp 10.0.0.1:7000" */
};

#endif
