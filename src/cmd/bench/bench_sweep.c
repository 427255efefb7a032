/* SPDX-License-Identifier: Apache-2.0 */

/* Chooses the points to measure and their order, and evaluates them. */

#include "cmd/bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "host/adapter.h"

enum {
	FIRST_BYTES = 1 << 20,
	LATENCY_BLOCK = 4096,
	DISK_FIRST = 32 << 20,
	NEAR_BEST = 97, /* percent of the best rate that a smaller setting may have */
	FINALISTS = 4,
};

/* Lanes and depth: one block at a time; two, so that one is filled while the other is in flight;
 * many in flight; many lanes. */
static const struct {
	unsigned lanes, depth;
} ladder[] = {{1, 1}, {1, 2}, {1, 16}, {4, 16}};
enum { STEPS = 4, MOST = STEPS - 1 };

static const uint32_t blocks[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
enum { BLOCKS = 6 };

/* ---- the plan ------------------------------------------------------------------------- */

static void add_series(struct bench *b, const struct setting *s)
{
	if (b->series_count == SERIES_MAX)
		return;
	for (unsigned i = 0; i < b->series_count; i++) {
		if (memcmp(&b->series[i].set, s, sizeof *s) == 0)
			return;
	}
	b->series[b->series_count++].set = *s;
}

static void add_step(struct bench *b, unsigned transport, unsigned op, unsigned step)
{
	struct setting s = {
		.transport = transport,
		.op = op,
		.lanes = b->o->speed.lanes ? b->o->speed.lanes : ladder[step].lanes,
		.depth = b->o->speed.depth ? b->o->speed.depth : ladder[step].depth,
	};

	add_series(b, &s);
}

static bool is_iwarp(const char *how)
{
	size_t len = strcspn(how, " ,");
	struct adapter *all;
	unsigned count;
	bool iwarp = false;

	if (adapters_list(NULL, &all, &count))
		return false;
	for (unsigned i = 0; i < count; i++)
		iwarp |= all[i].kind == ADAPTER_IWARP && strlen(all[i].device) == len &&
			 memcmp(all[i].device, how, len) == 0;
	free(all);
	return iwarp;
}

/* The whole ladder over the first transport. Other operations and transports are measured only at
 * its top. */
static void plan_series(struct bench *b, const struct point *first)
{
	bool rdma = first->transport == TRANSPORT_RDMA;
	unsigned op =
		rdma && b->o->speed.rdma_op == RDMA_OP_AUTO ? RDMA_OP_SEND : b->o->speed.rdma_op;
	unsigned other = rdma && strncmp(first->how, "rdma ", 5) == 0 && is_iwarp(first->how + 5)
				 ? RDMA_OP_WRITE_SEND
				 : RDMA_OP_WRITE_IMM;

	for (unsigned i = 0; i < STEPS; i++)
		add_step(b, first->transport, rdma ? op : RDMA_OP_AUTO, i);
	if (rdma && b->o->speed.rdma_op == RDMA_OP_AUTO)
		add_step(b, TRANSPORT_RDMA, other, MOST);
	if (rdma && b->o->network.want == TRANSPORT_AUTO)
		add_step(b, TRANSPORT_TCP, RDMA_OP_AUTO, MOST);
	b->planned = b->series_count * (b->o->speed.block_size ? 1 : BLOCKS);
	b->planned += (b->planned < FINALISTS ? b->planned : FINALISTS) + 3 +
		      !!b->o->measure.source + !!b->o->measure.target +
		      (b->o->measure.source && b->o->measure.target) +
		      (rdma && b->o->network.want == TRANSPORT_AUTO);
}

/* ---- the sweep ------------------------------------------------------------------------ */

/* Whether the series is of another transport or operation, which may be unavailable. */
static bool is_side_series(const struct bench *b, const struct series *s)
{
	return s != &b->series[0] &&
	       (s->set.transport != b->series[0].set.transport || s->set.op != b->series[0].set.op);
}

static int measure_series(struct bench *b, struct series *s, const struct series *before)
{
	unsigned count = b->o->speed.block_size ? 1 : BLOCKS;
	struct setting set = s->set;

	if (before && before->count)
		b->expected_rate = point_rate(&before->points[0]);
	for (unsigned i = 0; i < count; i++) {
		struct point *p = &s->points[s->count];

		set.block_size =
			b->o->speed.block_size ? (uint32_t)b->o->speed.block_size : blocks[i];
		if (bench_point(b, STAGE_MEMORY, &set, UINT64_MAX, p))
			return -1;
		s->count++;
		print_point(b, p);
	}
	print_series(b, s);
	return 0;
}

static bool may_skip_series(struct bench *b, const struct series *s)
{
	char set[64];

	if (!is_side_series(b, s) || b->failure.code == OUT_SIGNAL)
		return false;
	log_warn("skipping %s: %s", setting_text(&s->set, set, sizeof set), b->failure.text);
	b->failure = (struct failure){0};
	b->retries = 0;
	return true;
}

static uint64_t setting_memory(const struct setting *s)
{
	return (uint64_t)s->lanes * s->depth * s->block_size;
}

/* The fastest point that has not been measured again; *of is its series. Returns NULL if there is
 * none. */
static struct point *next_finalist(struct bench *b, struct series **of)
{
	struct point *most = NULL;

	for (unsigned i = 0; i < b->series_count; i++) {
		for (unsigned k = 0; k < b->series[i].count; k++) {
			struct point *p = &b->series[i].points[k];

			if (p->shrunk || p->again || (most && point_rate(p) <= point_rate(most)))
				continue;
			most = p;
			*of = &b->series[i];
		}
	}
	return most;
}

/* The best of many single measurements is partly luck. So measures the fastest few again, and sums
 * both. */
static int measure_finalists(struct bench *b)
{
	struct point *finalists[FINALISTS];
	struct series *of[FINALISTS];
	unsigned count = 0;

	while (count < FINALISTS && (finalists[count] = next_finalist(b, &of[count])))
		finalists[count++]->again = true;
	for (unsigned i = 0; i < count; i++) {
		struct point *p = finalists[i], again;

		b->expected_rate = point_rate(p);
		if (bench_point(b, STAGE_MEMORY, &p->set, UINT64_MAX, &again)) {
			if (!may_skip_series(b, of[i]))
				return -1;
			continue;
		}
		p->bytes += again.bytes;
		p->ns += again.ns;
		p->shrunk |= again.shrunk;
		print_again(b, p, i == 0);
	}
	return 0;
}

static void find_best(struct bench *b)
{
	double most = 0;

	for (unsigned i = 0; i < b->series_count; i++) {
		for (unsigned k = 0; k < b->series[i].count; k++) {
			const struct point *p = &b->series[i].points[k];

			if (!p->shrunk && point_rate(p) > most)
				most = point_rate(p);
		}
	}
	for (unsigned i = 0; i < b->series_count; i++) {
		for (unsigned k = 0; k < b->series[i].count; k++) {
			const struct point *p = &b->series[i].points[k];

			if (!p->shrunk && point_rate(p) * 100 >= most * NEAR_BEST &&
			    (!b->best || setting_memory(&p->set) < setting_memory(&b->best->set)))
				b->best = p;
		}
	}
	/* No point got what its setting requested. */
	if (!b->best)
		b->best = &b->series[0].points[0];
}

void bench_advise(struct bench *b)
{
	bool pinned = b->o->speed.lanes || b->o->speed.depth || b->o->speed.block_size;

	b->advice = b->best;
	if (!pinned && point_rate(&b->by_itself) * 100 >= point_rate(b->best) * NEAR_BEST)
		b->advice = &b->by_itself;
}

static int run_sweep(struct bench *b)
{
	for (unsigned i = 0; i < b->series_count; i++) {
		struct series *s = &b->series[i];

		if (measure_series(b, s, i ? &b->series[i - 1] : NULL) && !may_skip_series(b, s))
			return -1;
	}
	if (measure_finalists(b))
		return -1;
	find_best(b);
	return 0;
}

/* ---- latency and stages ----------------------------------------------------------------- */

static int measure_latency(struct bench *b, unsigned transport)
{
	struct setting set = {
		.transport = transport, .lanes = 1, .depth = 1, .block_size = LATENCY_BLOCK};
	struct point *p = &b->latency[b->latency_count];

	if (transport == TRANSPORT_RDMA)
		set.op = b->o->speed.rdma_op;
	b->expected_rate = 0;
	if (bench_point(b, STAGE_MEMORY, &set, UINT64_MAX, p))
		return -1;
	b->latency_count++;
	return 0;
}

static int measure_latencies(struct bench *b)
{
	unsigned first = b->series[0].set.transport;

	if (measure_latency(b, first) ||
	    (first == TRANSPORT_RDMA && b->o->network.want == TRANSPORT_AUTO &&
	     measure_latency(b, TRANSPORT_TCP)))
		return -1;
	print_latency(b);
	return 0;
}

static int measure_stage(struct bench *b, enum bench_stage stage, uint64_t most)
{
	if (bench_point(b, stage, &b->best->set, most, &b->stages[stage]))
		return -1;
	print_stage(b, &b->stages[stage]);
	return 0;
}

/* The rate of the disk is unknown, and a file created for it takes time too: start small. */
static int measure_disk(struct bench *b, enum bench_stage stage)
{
	b->expected_rate = DISK_FIRST * 1000.0 / b->o->measure.ms;
	return measure_stage(b, stage, UINT64_MAX);
}

static double min_double(double a, double b)
{
	return a < b ? a : b;
}

static int measure_end_to_end(struct bench *b)
{
	struct point *source = &b->stages[STAGE_SOURCE], *target = &b->stages[STAGE_TARGET];
	/* scratch_target() left as much disk space free as the measurement of the target took. */
	uint64_t most = 2 * target->bytes;

	b->expected_rate =
		min_double(min_double(point_rate(source), point_rate(target)), point_rate(b->best));
	return measure_stage(b, STAGE_END_TO_END, most);
}

static int measure_stages(struct bench *b)
{
	struct setting none = {.transport = b->o->network.want, .op = b->o->speed.rdma_op};

	if (b->o->measure.source && measure_disk(b, STAGE_SOURCE))
		return -1;
	b->expected_rate = point_rate(b->best);
	if (measure_stage(b, STAGE_NETWORK, UINT64_MAX))
		return -1;
	b->stages[STAGE_MEMORY] = *b->best;
	print_stage(b, &b->stages[STAGE_MEMORY]);
	if (b->o->measure.target && measure_disk(b, STAGE_TARGET))
		return -1;
	if (b->o->measure.source && b->o->measure.target && measure_end_to_end(b))
		return -1;
	b->expected_rate = point_rate(b->best);
	if (bench_point(b, STAGE_MEMORY, &none, UINT64_MAX, &b->by_itself))
		return -1;
	bench_advise(b);
	return 0;
}

/* Detects unusable disks before the sweep, which takes a minute. */
static int try_disks(struct bench *b, const struct setting *s)
{
	struct point p;

	if (b->o->measure.source && bench_measure(b, STAGE_SOURCE, s, FIRST_BYTES, &p))
		return -1;
	return b->o->measure.target ? bench_measure(b, STAGE_TARGET, s, FIRST_BYTES, &p) : 0;
}

int bench_run(struct bench *b)
{
	struct setting set = {.transport = b->o->network.want, .op = b->o->speed.rdma_op};
	struct point first;

	print_start(b);
	/* The first session shows the transport, and warms up both hosts. */
	if (bench_measure(b, STAGE_MEMORY, &set, FIRST_BYTES, &first) || try_disks(b, &set))
		return -1;
	if (b->o->network.want == TRANSPORT_AUTO && first.transport != TRANSPORT_RDMA &&
	    first.why[0])
		log_info("RDMA is not measured: %s", first.why);
	plan_series(b, &first);
	nic_limit_find(NULL, first.how, &b->limit);
	return measure_latencies(b) || run_sweep(b) || measure_stages(b) ? -1 : 0;
}
