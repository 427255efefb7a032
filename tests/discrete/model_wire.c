/* SPDX-License-Identifier: Apache-2.0 */
#include "model_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "lane/head.h"
#include "lane/patience.h"
#include "lane/pool.h"
#include "scheduler.h"
#include "stage.h"

enum { CREDITS_SPARE = 1, SENDS_SPARE = 2 }; /* as in lane/verbs/verbs_impl.h */

enum work { WORK_SEND_BLOCK, WORK_SEND_CREDIT, WORK_RECV_BLOCK, WORK_RECV_CREDIT };

struct completion {
	enum work work;
	uint32_t slot, len;
	struct credit credit;
};

/* One end of a connection; the fields are those of struct verbs. */
struct model_wire {
	struct wire wire;
	struct wire_pair *pair;
	struct lane *lane;
	enum lane_side side;
	uint32_t depth, epoch;
	bool broken, closed;
	struct gate arrived; /* a completion, or the end of the wire */

	struct completion *queue; /* a ring of queue_room */
	uint32_t queue_first, queue_count, queue_room;
	uint32_t receives; /* posted for blocks or credits */
	uint32_t sends; /* posted and not yet taken from the queue */

	/* source */
	bool block_sent;
	uint64_t next, released, stored;
	bool credited;
	struct patience patience;

	/* sink: rings of depth */
	uint32_t *posted, posted_first; /* slots; receives has their number */
	struct completion *arrivals;
	uint32_t arrivals_first, arrivals_count;
	uint64_t granted;
};

struct wire_pair {
	struct link_model *link;
	struct wire_loss loss;
	bool lost;
	struct model_wire ends[LANE_SINK + 1];
	struct wire_pair *next;
};

struct message {
	struct model_wire *to;
	struct completion at_receiver, at_sender;
	uint8_t head[LANE_HEAD];
};

static struct wire_pair *pairs;
static uint64_t grants, lost_ps;

static const struct wire_ops model_ops;

static void end_program(const struct model_wire *w, const char *what)
{
	fprintf(stderr, "discrete: lane %u epoch %u: %s\n", lane_index(w->lane), w->epoch, what);
	abort();
}

static struct model_wire *model_of(struct wire *w)
{
	return (struct model_wire *)w;
}

static struct model_wire *peer_of(const struct model_wire *w)
{
	return &w->pair->ends[w->side == LANE_SOURCE ? LANE_SINK : LANE_SOURCE];
}

static void init_end(struct wire_pair *p, struct lane *l, uint32_t epoch)
{
	enum lane_side side = lane_side_of(l);
	struct model_wire *w = &p->ends[side];

	*w = (struct model_wire){
		.wire = {.ops = &model_ops},
		.pair = p,
		.lane = l,
		.side = side,
		.depth = lane_depth(l),
		.epoch = epoch,
		.queue_room = 2 * lane_depth(l) + CREDITS_SPARE + SENDS_SPARE,
	};
	snprintf(w->wire.name, sizeof w->wire.name, "model %u", lane_index(l));
	w->receives = w->depth + (side == LANE_SOURCE ? CREDITS_SPARE : 0);
	w->queue = calloc(w->queue_room, sizeof *w->queue);
	w->posted = calloc(w->depth, sizeof *w->posted);
	w->arrivals = calloc(w->depth, sizeof *w->arrivals);
	if (!w->queue || !w->posted || !w->arrivals)
		end_program(w, "out of memory");
	for (uint32_t i = 0; i < w->depth; i++)
		w->posted[i] = i;
}

struct wire_pair *wire_pair_new(struct link_model *link, struct lane *source, struct lane *sink,
				uint32_t epoch, const struct wire_loss *loss)
{
	struct wire_pair *p = calloc(1, sizeof *p);

	if (!p)
		abort();
	*p = (struct wire_pair){.link = link, .loss = *loss, .next = pairs};
	pairs = p;
	init_end(p, source, epoch);
	init_end(p, sink, epoch);
	return p;
}

struct wire *wire_pair_end(struct wire_pair *p, enum lane_side side)
{
	return &p->ends[side].wire;
}

void wire_pairs_free(void)
{
	while (pairs) {
		struct wire_pair *p = pairs;

		pairs = p->next;
		for (unsigned side = LANE_SOURCE; side <= LANE_SINK; side++) {
			free(p->ends[side].queue);
			free(p->ends[side].posted);
			free(p->ends[side].arrivals);
		}
		free(p);
	}
}

uint64_t wire_grants(void)
{
	return grants;
}

uint64_t wire_lost_ps(void)
{
	return lost_ps;
}

/* ---- the adapters and the link ---------------------------------------------------------- */

static void push_completion(struct model_wire *w, const struct completion *c)
{
	if (w->queue_count == w->queue_room)
		end_program(w, "the completion queue overflows");
	w->queue[(w->queue_first + w->queue_count++) % w->queue_room] = *c;
	gate_open(&w->arrived);
}

static void acknowledge_message(void *arg)
{
	struct message *m = arg;
	struct model_wire *from = peer_of(m->to);

	if (!from->closed && !from->pair->lost)
		push_completion(from, &m->at_sender);
	free(m);
}

static void deliver_message(void *arg)
{
	struct message *m = arg;
	struct model_wire *to = m->to;

	if (to->closed || to->pair->lost) {
		free(m);
		return;
	}
	if (to->receives == 0)
		end_program(to, "a message finds no posted receive");
	to->receives--;
	if (to->side == LANE_SINK) {
		m->at_receiver.slot = to->posted[to->posted_first];
		to->posted_first = (to->posted_first + 1) % to->depth;
		memcpy(lane_pool(to->lane)->blocks[m->at_receiver.slot].data - LANE_HEAD, m->head,
		       LANE_HEAD);
		atomic_fetch_add_explicit(&to->wire.received, 1, memory_order_relaxed);
	}
	push_completion(to, &m->at_receiver);
	schedule_call(now_ps() + to->pair->link->latency_ps, acknowledge_message, m);
}

/* When the last bit of a message that is posted now arrives. */
static uint64_t transmit_bytes(struct link_model *link, enum lane_side from, uint64_t bytes)
{
	uint64_t *free_ps = &link->free_ps[from];

	/* 1 Mbit/s is one bit in a million picoseconds. */
	*free_ps = (*free_ps > now_ps() ? *free_ps : now_ps()) + bytes * 8000000 / link->mbits;
	return *free_ps + link->latency_ps;
}

static void post_message(struct model_wire *w, const struct message *m, uint64_t bytes)
{
	struct message *copy = malloc(sizeof *copy);

	if (!copy)
		end_program(w, "out of memory");
	*copy = *m;
	copy->to = peer_of(w);
	w->sends++;
	stage_spend(w->side, STAGE_POST, 0, 1);
	schedule_call(transmit_bytes(w->pair->link, w->side, bytes), deliver_message, copy);
}

static void post_receive(struct model_wire *w, uint32_t slot)
{
	stage_spend(w->side, STAGE_POST, 0, 1);
	w->posted[(w->posted_first + w->receives) % w->depth] = slot;
	w->receives++;
}

/* ---- completions ------------------------------------------------------------------------ */

static int check_wire(const struct model_wire *w)
{
	return w->broken ? fail_as(OUT_PEER_LOST, "%s: the connection was lost", w->wire.name) : 0;
}

static void take_completion(struct model_wire *w, const struct completion *c)
{
	stage_spend(w->side, STAGE_COMPLETION, 0, 1);
	switch (c->work) {
	case WORK_SEND_BLOCK:
		w->sends--;
		w->released++;
		break;
	case WORK_SEND_CREDIT:
		w->sends--;
		break;
	case WORK_RECV_BLOCK:
		lane_heard_wire(w->lane);
		w->arrivals[(w->arrivals_first + w->arrivals_count++) % w->depth] = *c;
		break;
	case WORK_RECV_CREDIT:
		lane_heard_wire(w->lane);
		stage_spend(w->side, STAGE_CREDIT, 0, 1);
		if (c->credit.epoch != w->epoch || c->credit.stored <= w->stored)
			end_program(w, "a wrong credit");
		post_receive(w, 0);
		w->stored = c->credit.stored;
		w->credited = true;
		break;
	}
}

/* Takes all completions that are there; returns their number, or -1. */
static int reap_queue(struct model_wire *w)
{
	int n = 0;

	if (check_wire(w))
		return -1;
	for (; w->queue_count > 0; n++) {
		struct completion c = w->queue[w->queue_first];

		w->queue_first = (w->queue_first + 1) % w->queue_room;
		w->queue_count--;
		take_completion(w, &c);
	}
	return n;
}

/* Waits for a completion, and takes those that are there. */
static int await_progress(struct model_wire *w, uint64_t until_ms)
{
	uint64_t from = now_ps(), left_ms = until_ms ? (uint64_t)clock_left(until_ms) : 0;
	int n = reap_queue(w);

	if (n)
		return n < 0 ? -1 : 0;
	gate_wait(&w->arrived, until_ms ? from + (left_ms + 1) * PS_PER_MS : 0);
	if (now_ps() - from > spin_ps)
		stage_spend(w->side, STAGE_WAKE, 0, 1);
	return reap_queue(w) < 0 ? -1 : 0;
}

static int check_sink_alive(struct model_wire *w)
{
	struct wire_signs now = {.credits = w->stored + w->released,
				 .acknowledged = w->released,
				 .awaits_ack = w->sends > 0,
				 .fresh = !w->credited};

	return patience_look(&w->patience, w->lane, &now);
}

static int await_sink(struct model_wire *w)
{
	if (await_progress(w, patience_next(&w->patience, w->lane, !w->credited)))
		return -1;
	return check_sink_alive(w);
}

static int await_send_room(struct model_wire *w)
{
	while (w->sends >= w->depth + SENDS_SPARE)
		if (w->side == LANE_SOURCE ? await_sink(w) : await_progress(w, 0))
			return -1;
	return 0;
}

/* ---- operations ------------------------------------------------------------------------- */

static void model_break(struct wire *wire)
{
	model_of(wire)->broken = true;
	gate_open(&model_of(wire)->arrived);
}

static void report_loss(void *arg)
{
	struct model_wire *w = arg;

	if (!w->closed)
		model_break(&w->wire);
}

static void lose_pair(struct wire_pair *p)
{
	if (p->lost)
		return;
	p->lost = true;
	lost_ps = now_ps();
	if (p->loss.notice_ps)
		schedule_call(now_ps() + p->loss.notice_ps, report_loss, &p->ends[LANE_SOURCE]);
}

static int model_send(struct wire *wire, struct block *b)
{
	struct model_wire *w = model_of(wire);
	struct message m = {
		.at_receiver = {.work = WORK_RECV_BLOCK, .len = b->len},
		.at_sender = {.work = WORK_SEND_BLOCK},
	};

	if (!w->block_sent) {
		w->block_sent = true;
		w->next = w->stored = w->released = b->number;
	}
	if (check_wire(w))
		return -1;
	while (b->number - w->stored >= w->depth)
		if (await_sink(w))
			return -1;
	if (await_send_room(w))
		return -1;
	if (b->number >= w->pair->loss.at)
		lose_pair(w->pair);
	memcpy(m.head, b->data - LANE_HEAD, LANE_HEAD);
	post_message(w, &m, LANE_HEAD + b->len);
	w->next = b->number + 1;
	return 0;
}

static uint64_t count_credited(const struct model_wire *w)
{
	return w->stored < w->released ? w->stored : w->released;
}

static int model_credit(struct wire *wire, uint64_t least, uint64_t *stored)
{
	struct model_wire *w = model_of(wire);

	if (least == 0 && count_credited(w) < w->next && (reap_queue(w) < 0 || check_sink_alive(w)))
		return -1;
	while (count_credited(w) < least)
		if (await_sink(w))
			return -1;
	*stored = count_credited(w);
	return 0;
}

static int model_grant(struct wire *wire, uint64_t stored)
{
	struct model_wire *w = model_of(wire);
	struct message m = {
		.at_receiver = {.work = WORK_RECV_CREDIT, .credit = {w->epoch, stored}},
		.at_sender = {.work = WORK_SEND_CREDIT},
	};

	if (stored <= w->granted)
		return 0;
	if (check_wire(w) || await_send_room(w))
		return -1;
	stage_spend(w->side, STAGE_CREDIT, 0, 1);
	post_message(w, &m, CREDIT_SIZE);
	w->granted = stored;
	grants++;
	return 0;
}

static int model_post(struct wire *wire, struct block *b)
{
	struct model_wire *w = model_of(wire);

	if (check_wire(w))
		return -1;
	post_receive(w, b->slot);
	return 0;
}

static int model_recv(struct wire *wire, bool wait, struct block **out)
{
	struct model_wire *w = model_of(wire);
	struct completion c;

	*out = NULL;
	if (check_wire(w))
		return -1;
	if (!w->arrivals_count && !wait && reap_queue(w) < 0)
		return -1;
	while (!w->arrivals_count && wait)
		if (await_progress(w, 0))
			return -1;
	if (!w->arrivals_count)
		return 0;
	c = w->arrivals[w->arrivals_first];
	w->arrivals_first = (w->arrivals_first + 1) % w->depth;
	w->arrivals_count--;
	*out = &lane_pool(w->lane)->blocks[c.slot];
	(*out)->len = c.len;
	return 0;
}

static void model_close(struct wire *wire)
{
	model_of(wire)->closed = true;
}

static const struct wire_ops model_ops = {
	.send = model_send,
	.credit = model_credit,
	.post = model_post,
	.recv = model_recv,
	.grant = model_grant,
	.break_ = model_break,
	.close = model_close,
};
