/* SPDX-License-Identifier: Apache-2.0 */
#include "model_session.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/fail.h"
#include "lane/pool.h"
#include "scheduler.h"
#include "stage.h"

enum { CONNECT_ROUND_TRIPS = 2 };

struct lane_end {
	struct lane *lane;
	struct lane_pair *pair;
	struct task task;
	struct gate connected;
	uint64_t wants; /* epoch + 1 of the wire that it waits for */
	struct wire *wire; /* its end of the new connection */
	uint64_t stored; /* source: what the sink reported for the new connection */
};

struct lane_pair {
	struct lane_end ends[LANE_SINK + 1];
};

/* A message on the control channel. */
struct control_message {
	struct lane_end *to;
	uint32_t epoch;
	bool busy;
};

static struct lane_pair lane_pairs[LANE_COUNT_MAX];
static const struct transfer *transfer;
static struct transfer_result *result;
static struct link_model shared_link;
static const struct wire_loss no_loss = {.at = UINT64_MAX};
static uint64_t claimed, stored, noted_loss_ps;
static unsigned sources_left;

static enum lane_side side_of(const struct lane_end *e)
{
	return lane_side_of(e->lane);
}

static struct lane_end *peer_of(struct lane_end *e)
{
	return &e->pair->ends[side_of(e) == LANE_SOURCE ? LANE_SINK : LANE_SOURCE];
}

static void record_failure(const struct lane_end *e)
{
	if (!result->failed)
		snprintf(result->why, sizeof result->why, "%s: %s",
			 side_of(e) == LANE_SOURCE ? "source" : "sink", failed()->text);
	result->failed = true;
}

static void abort_lanes(void)
{
	for (unsigned i = 0; i < transfer->lanes; i++)
		for (unsigned side = LANE_SOURCE; side <= LANE_SINK; side++) {
			lane_abort(lane_pairs[i].ends[side].lane);
			gate_open(&lane_pairs[i].ends[side].connected);
		}
}

/* ---- the control channel ---------------------------------------------------------------- */

static void send_control(struct lane_end *to, uint32_t epoch, bool busy, void (*take)(void *))
{
	struct control_message *m = malloc(sizeof *m);

	if (!m)
		abort();
	*m = (struct control_message){to, epoch, busy};
	schedule_call(now_ps() + shared_link.latency_ps, take, m);
}

static void take_lane_down(void *arg)
{
	struct control_message *m = arg;

	lane_break(m->to->lane, m->epoch, "the peer reports that the connection is lost");
	free(m);
}

static void take_answer(void *arg)
{
	struct control_message *m = arg;

	lane_held(m->to->lane, m->epoch, m->busy);
	free(m);
}

static void take_question(void *arg)
{
	struct control_message *m = arg;

	send_control(peer_of(m->to), m->epoch, lane_check(m->to->lane, m->epoch), take_answer);
	free(m);
}

static void ask_sink(void *ctx, struct lane *l, uint32_t epoch)
{
	(void)l;
	send_control(peer_of(ctx), epoch, false, take_question);
}

/* ---- wires ------------------------------------------------------------------------------ */

/* Both ends want a wire. Returns when they have it. First LANE_STORED or LANE_DOWN of the last of
 * them arrives; one end registers its memory before it calls, the other one before it answers. */
static uint64_t connect_ends(struct lane_end *last, uint32_t epoch)
{
	struct lane_end *source = &last->pair->ends[LANE_SOURCE];
	struct lane_end *sink = &last->pair->ends[LANE_SINK];
	bool lost = last->pair == lane_pairs && epoch < transfer->losses;
	struct wire_pair *p = wire_pair_new(&shared_link, source->lane, sink->lane, epoch,
					    lost ? &transfer->loss : &no_loss);
	unsigned trips = 2 * CONNECT_ROUND_TRIPS + (epoch > 0); /* one way each */
	size_t bytes = lane_pool(source->lane)->bytes;

	source->stored = lane_stored(sink->lane);
	source->wire = wire_pair_end(p, LANE_SOURCE);
	sink->wire = wire_pair_end(p, LANE_SINK);
	return now_ps() + trips * shared_link.latency_ps +
	       stage_charge(LANE_SOURCE, STAGE_REGISTER, bytes, 1) +
	       stage_charge(LANE_SINK, STAGE_REGISTER, bytes, 1);
}

static void open_gate(void *arg)
{
	gate_open(arg);
}

/* The end that comes first waits for the other. */
static int mend_lane(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct lane_end *e = ctx, *peer = peer_of(e);

	(void)why;
	if (epoch > 0)
		send_control(peer, epoch - 1, false, take_lane_down);
	e->wants = (uint64_t)epoch + 1;
	if (peer->wants == e->wants) {
		uint64_t ready = connect_ends(e, epoch);

		schedule_call(ready, open_gate, &peer->connected);
		task_sleep_until(ready);
	} else {
		gate_wait(&e->connected, 0);
	}
	if (lane_aborted(l))
		return fail_as(OUT_PEER_LOST, "aborted");
	return lane_attach(l, e->wire, e->stored);
}

/* ---- the threads of a lane ---------------------------------------------------------------- */

static int send_blocks(struct lane *l)
{
	struct block *b;

	for (;;) {
		if (lane_get(l, &b))
			return -1;
		if (claimed == transfer->blocks)
			return lane_flush(l);
		b->kind = BLOCK_EXTENT;
		b->pos = claimed++ * transfer->block_size;
		b->len = transfer->block_size;
		stage_spend(LANE_SOURCE, STAGE_FILL, b->len, 1);
		stage_spend(LANE_SOURCE, STAGE_LANE, 0, 1);
		if (lane_send(l, b))
			return -1;
	}
}

static void run_source(void *arg)
{
	struct lane_end *e = arg;

	stage_enter(LANE_SOURCE);
	if (send_blocks(e->lane))
		record_failure(e);
	if (--sources_left > 0 && !result->failed)
		return;
	result->end_ps = now_ps();
	abort_lanes();
}

static void note_stored(struct lane_end *e)
{
	unsigned index = lane_index(e->lane);

	result->stored_ps[stored++] = now_ps();
	result->by_lane[index]++;
	if (index == 0 && noted_loss_ps != wire_lost_ps()) {
		noted_loss_ps = wire_lost_ps();
		result->paused_ps = now_ps() - noted_loss_ps;
	}
}

static int store_blocks(struct lane_end *e)
{
	unsigned index = lane_index(e->lane);
	double factor = index == transfer->slow_lane ? transfer->slow_factor : 1;
	struct block *b;

	for (;;) {
		if (lane_recv(e->lane, &b))
			return -1;
		stage_spend(LANE_SINK, STAGE_STORE, b->len, factor);
		stage_spend(LANE_SINK, STAGE_LANE, 0, 1);
		if (index == 0 && b->number == transfer->pauses_at)
			task_sleep_until(now_ps() + transfer->pause_ps);
		note_stored(e);
		if (lane_put(e->lane, b))
			return -1;
	}
}

static void run_sink(void *arg)
{
	struct lane_end *e = arg;

	stage_enter(LANE_SINK);
	store_blocks(e);
	if (sources_left > 0) {
		record_failure(e);
		abort_lanes();
	}
}

/* ---- a transfer --------------------------------------------------------------------------- */

static void open_end(unsigned index, enum lane_side side)
{
	struct lane_end *e = &lane_pairs[index].ends[side];
	struct lane_setup setup = {
		.index = index,
		.side = side,
		.depth = transfer->depth,
		.block_size = transfer->block_size,
		.timeout_ms = transfer->timeout_ms,
		.mend = mend_lane,
		.ask = side == LANE_SOURCE ? ask_sink : NULL,
		.mend_ctx = e,
	};

	e->pair = &lane_pairs[index];
	if (lane_open(&setup, &e->lane)) {
		fprintf(stderr, "discrete: %s\n", failed()->text);
		exit(failed()->code);
	}
}

static void close_end(struct lane_end *e)
{
	struct lane_stats s;

	lane_stats(e->lane, &s);
	result->resent += s.resent;
	if (side_of(e) == LANE_SINK)
		result->epochs += s.epochs;
	lane_close(e->lane);
}

void transfer_run(const struct transfer *t, struct transfer_result *r)
{
	*r = (struct transfer_result){.stored_ps = calloc(t->blocks, sizeof *r->stored_ps)};
	if (!r->stored_ps)
		abort();
	transfer = t;
	result = r;
	shared_link = t->link;
	sources_left = t->lanes;
	for (unsigned i = 0; i < t->lanes; i++) {
		open_end(i, LANE_SOURCE);
		open_end(i, LANE_SINK);
	}
	for (unsigned i = 0; i < t->lanes; i++) {
		task_start(&lane_pairs[i].ends[LANE_SOURCE].task, run_source,
			   &lane_pairs[i].ends[LANE_SOURCE]);
		task_start(&lane_pairs[i].ends[LANE_SINK].task, run_sink,
			   &lane_pairs[i].ends[LANE_SINK]);
	}
	scheduler_run();
	for (unsigned i = 0; i < t->lanes; i++) {
		close_end(&lane_pairs[i].ends[LANE_SOURCE]);
		close_end(&lane_pairs[i].ends[LANE_SINK]);
	}
	r->credits = wire_grants();
	wire_pairs_free();
}

void transfer_result_free(struct transfer_result *r)
{
	free(r->stored_ps);
}
