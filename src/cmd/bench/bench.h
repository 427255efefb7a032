/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_BENCH_BENCH_H
#define CMD_BENCH_BENCH_H

/*
 * rdbench's inside: bench.c measures one point, bench_sweep.c knows which ones, bench_print.c
 * tells of them, bench_link.c knows what the link could do, bench_plot.c draws.
 *
 * A point is an ordinary session of two ends, or one end alone with its disk.
 */

#include "cmd/conductor/conductor.h"

enum bench_stage {
	STAGE_MEMORY, /* memory to memory, as rdcp moves it */
	STAGE_NETWORK, /* lanes alone: nothing is hashed */
	STAGE_SOURCE, /* disks alone */
	STAGE_TARGET,
	STAGE_END_TO_END,
	STAGES
};

/* 0: as the ends choose. */
struct setting {
	unsigned transport; /* enum transport */
	unsigned op; /* enum rdma_op */
	unsigned lanes, depth;
	uint32_t block_size;
};

struct point {
	enum bench_stage stage;
	struct setting set;
	uint64_t bytes, ns; /* ns 0: not measured */
	/* What the ends made of it. */
	unsigned transport, lanes, depth; /* depth 0: not known */
	bool shrunk; /* to less than what was asked for */
	bool again; /* it was among the fastest, and bytes and ns are of two measurements */
	char how[HOST_MAX], why[TEXT_MAX];
};

/* Points of one setting but for the block size. */
enum { SERIES_MAX = 16, BLOCKS_MAX = 16 };
struct series {
	struct setting set; /* block_size 0 */
	unsigned count;
	struct point points[BLOCKS_MAX];
};

struct nic_limit {
	double rate; /* bytes a second; 0: not known, or there is none */
	char name[64]; /* "mlx5_0", "eth0" */
};

struct bench {
	const struct options *o;
	const char *host; /* "": this one */
	struct end_pipe far;
	struct progress progress;
	unsigned done, planned; /* points */
	uint64_t line_ms; /* when a line last told of them */
	bool began; /* the first one */
	unsigned repeats; /* of this one */
	double guess; /* bytes a second */

	struct series series[SERIES_MAX];
	unsigned series_count;
	struct point stages[STAGES], by_itself;
	struct point latency[2];
	unsigned latency_count;
	const struct point *best; /* of the sweep */
	const struct point *advice; /* that, or by_itself where it is as fast */
	struct nic_limit limit;
	struct failure failure;
	char failed_host[HOST_MAX];
};

/* ---- bench.c ------------------------------------------------------------------------ */

/* Measure it for the user's seconds, at `guess' bytes a second at first; at most `most' bytes.
 * 0, or -1 with b->failure. */
int bench_point(struct bench *b, enum bench_stage stage, const struct setting *s, uint64_t most,
		struct point *out);
/* The same for so many bytes, once. */
int bench_bytes(struct bench *b, enum bench_stage stage, const struct setting *s, uint64_t bytes,
		struct point *out);
void bench_end(struct bench *b);

static inline double point_rate(const struct point *p)
{
	return p->ns ? (double)p->bytes * 1e9 / (double)p->ns : 0;
}
/* Seconds from sending one block to having its credit back: of one lane of depth 1. */
static inline double point_latency(const struct point *p)
{
	return (double)p->ns / 1e9 * p->set.block_size / (double)(p->bytes ? p->bytes : 1);
}

/* ---- bench_sweep.c ------------------------------------------------------------------- */

/* All of it. 0, or -1 with b->failure. */
int bench_run(struct bench *b);

/* ---- bench_link.c -------------------------------------------------------------------- */

/* Of the adapters or the network device that a wire of this name goes over.  root takes the place
 * of /sys for adapters, NULL: /sys. */
void nic_limit_find(const char *root, const char *how, struct nic_limit *out);

/* ---- bench_print.c ------------------------------------------------------------------- */

/* Why what is printed can't be written; 0 if it can. */
int stdout_error(void);
void print_start(const struct bench *b);
void print_point(const struct bench *b, const struct point *p);
void print_series(const struct bench *b, const struct series *s);
/* One that was measured again. */
void print_again(const struct bench *b, const struct point *p, bool first);
void print_latency(const struct bench *b);
void print_stage(const struct bench *b, const struct point *p);
/* Of all of it, or of what there was until b->failure. */
void print_summary(const struct bench *b);
const char *stage_name(enum bench_stage stage);
/* GB/s of bytes a second, with as many digits as say something; returns to. */
enum { RATE_TEXT = 24 };
char *rate_text(double rate, char *to, size_t size);
/* "rdma write-imm, 4 lanes, depth 16"; returns to. */
char *setting_text(const struct setting *s, char *to, size_t size);
/* Were there settings that did not get what they ask for? */
bool any_shrunk(const struct bench *b);
/* "--lanes 4 --depth 16 --block-size 1M"; returns to. */
enum { OPTIONS_TEXT = 160 };
char *setting_options(const struct bench *b, const struct setting *s, char *to, size_t size);

/* ---- bench_plot.c -------------------------------------------------------------------- */

/* Can the picture be written there?  To be asked before the work. */
int plot_check(const char *file);
int plot_write(const struct bench *b, const char *file);

#endif
