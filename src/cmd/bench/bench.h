/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_BENCH_BENCH_H
#define CMD_BENCH_BENCH_H

/*
 * The private parts of rdbench: bench.c measures one point, bench_sweep.c chooses the points,
 * bench_print.c prints them, nic_limit.c finds the limit of the link, bench_plot.c draws.
 *
 * A point is an ordinary session of two ends, or one end alone with its disk.
 */

#include "cmd/conductor/conductor.h"

enum bench_stage {
	STAGE_MEMORY, /* memory to memory, as rdcp moves data */
	STAGE_NETWORK, /* lanes alone, without hashes */
	STAGE_SOURCE, /* one disk alone */
	STAGE_TARGET,
	STAGE_END_TO_END,
	STAGES
};

/* 0: the ends choose. */
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
	/* What the ends actually used. */
	unsigned transport, lanes, depth; /* depth 0: unknown */
	bool shrunk; /* to less than requested */
	bool again; /* it was among the fastest and measured twice; bytes and ns are sums */
	enum encrypted encrypted;
	char how[HOST_MAX], why[TEXT_MAX];
};

/* Points of one setting with different block sizes. */
enum { SERIES_MAX = 16, BLOCKS_MAX = 16 };
struct series {
	struct setting set; /* block_size 0 */
	unsigned count;
	struct point points[BLOCKS_MAX];
};

struct nic_limit {
	double rate; /* bytes per second; 0: unknown, or none */
	char name[64]; /* "mlx5_0", "eth0" */
};

struct bench {
	const struct options *o;
	const char *host; /* "": this host */
	struct end_pipe far;
	struct progress progress;
	unsigned done, planned; /* number of points */
	uint64_t line_ms; /* when a line last reported them */
	bool began; /* the first point has begun */
	unsigned retries; /* of the current point */
	double expected_rate; /* of the next point, in bytes per second; 0: unknown */

	struct series series[SERIES_MAX];
	unsigned series_count;
	struct point stages[STAGES], by_itself;
	struct point latency[2];
	unsigned latency_count;
	const struct point *best; /* fastest point of the sweep */
	const struct point *advice; /* the same, or by_itself if that is as fast */
	struct nic_limit limit;
	struct failure failure;
	char failed_host[HOST_MAX];
};

/* ---- bench.c ------------------------------------------------------------------------ */

/* Measures for the user's seconds, expecting b->expected_rate; at most `most' bytes.
 * Returns 0, or -1 with b->failure. */
int bench_point(struct bench *b, enum bench_stage stage, const struct setting *s, uint64_t most,
		struct point *out);
/* False: stdout can't be written to, and b has that as its failure. */
bool bench_check_stdout(struct bench *b);
/* Measures a given number of bytes, once. */
int bench_measure(struct bench *b, enum bench_stage stage, const struct setting *s, uint64_t bytes,
		  struct point *out);
void bench_close(struct bench *b);

static inline double point_rate(const struct point *p)
{
	return p->ns ? (double)p->bytes * 1e9 / (double)p->ns : 0;
}
/* Seconds from sending a block to receiving its credit, for a point of one lane of depth 1. */
static inline double point_latency(const struct point *p)
{
	return (double)p->ns / 1e9 * p->set.block_size / (double)(p->bytes ? p->bytes : 1);
}

/* ---- bench_sweep.c ------------------------------------------------------------------- */

/* Measures everything. Returns 0, or -1 with b->failure. */
int bench_run(struct bench *b);
/* Recommends b->best, or the defaults if they are as fast, unless the user chose a setting. */
void bench_advise(struct bench *b);

/* ---- nic_limit.c --------------------------------------------------------------------- */

/* The limit of the adapters or the network device of a wire with this name. root replaces /sys for
 * adapters; NULL: /sys. */
void nic_limit_find(const char *root, const char *how, struct nic_limit *out);

/* ---- bench_print.c ------------------------------------------------------------------- */

void print_start(const struct bench *b);
void print_point(const struct bench *b, const struct point *p);
void print_series(const struct bench *b, const struct series *s);
/* Prints a point that was measured again. */
void print_again(const struct bench *b, const struct point *p, bool first);
void print_latency(const struct bench *b);
void print_stage(const struct bench *b, const struct point *p);
/* Prints a summary of everything measured, up to b->failure if there is one. */
void print_summary(const struct bench *b);
const char *stage_name(enum bench_stage stage);
/* GB/s from bytes per second, with significant digits only; returns to. */
enum { RATE_TEXT = 24 };
char *rate_text(double rate, char *to, size_t size);
/* "rdma write-imm, 4 lanes, depth 16"; returns to. */
char *setting_text(const struct setting *s, char *to, size_t size);
/* Whether some points got less than their settings requested. */
bool any_shrunk(const struct bench *b);
/* "--lanes 4 --depth 16 --block-size 1M"; returns to. */
enum { OPTIONS_TEXT = 160 };
char *setting_options(const struct bench *b, const struct setting *s, char *to, size_t size);

/* ---- bench_plot.c -------------------------------------------------------------------- */

/* Checks whether the plot can be written to file. Call it before measuring. */
int plot_check(const char *file);
int plot_write(const struct bench *b, const char *file);

#endif
