/* SPDX-License-Identifier: Apache-2.0 */

/* Prints the table and the objects of --json. */

#include "cmd/bench/bench.h"

#include <string.h>
#include "base/escape.h"
#include "cmd/cli/amount.h"
#include "cmd/output/json.h"
#include "cmd/process/process.h"

/* The longest label is "rdma write-send, 4 lanes, depth 16", indented by two spaces. */
enum { LABEL = 36, CELL_WIDTH = 8 };

const char *stage_name(enum bench_stage stage)
{
	static const char *const names[STAGES] = {
		[STAGE_MEMORY] = "memory to memory",  [STAGE_NETWORK] = "network alone",
		[STAGE_SOURCE] = "source disk alone", [STAGE_TARGET] = "target disk alone",
		[STAGE_END_TO_END] = "end to end",
	};

	return names[stage];
}

static const char *const op_names[] = {"auto", "send", "write-imm", "write-send"};

/* "256k", "1M", as --block-size takes it. */
static char *block_text(uint32_t size, char *to, size_t room)
{
	if (size >= 1 << 20)
		snprintf(to, room, "%uM", size >> 20);
	else
		snprintf(to, room, "%uk", size >> 10);
	return to;
}

char *setting_text(const struct setting *s, char *to, size_t size)
{
	int used = snprintf(to, size, "%s",
			    s->transport ? transport_name((enum transport)s->transport)
					 : "default transport");

	if (s->op)
		used += snprintf(to + used, size - (size_t)used, " %s", op_names[s->op]);
	if (s->lanes)
		used += snprintf(to + used, size - (size_t)used, ", %u lane%s, depth %u", s->lanes,
				 s->lanes == 1 ? "" : "s", s->depth);
	if (s->block_size) {
		char block[16];

		snprintf(to + used, size - (size_t)used, ", %s",
			 block_text(s->block_size, block, sizeof block));
	}
	return to;
}

char *setting_options(const struct bench *b, const struct setting *s, char *to, size_t size)
{
	const struct setting *usual = &b->series[0].set;
	bool is_default = s == &b->by_itself.set;
	char block[16];
	int used = 0;

	*to = '\0';
	if (!is_default)
		used = snprintf(to, size, "--lanes %u --depth %u --block-size %s", s->lanes,
				s->depth, block_text(s->block_size, block, sizeof block));
	/* The transport, if rdcp does not choose it by default, or if the user requested it. */
	if ((!is_default && s->transport != usual->transport) || b->o->network.want)
		used += snprintf(to + used, size - (size_t)used, " --transport %s",
				 transport_name((enum transport)s->transport));
	if (s->op > RDMA_OP_SEND || (s->op && b->o->speed.rdma_op))
		used += snprintf(to + used, size - (size_t)used, " --rdma-op %s", op_names[s->op]);
	/* The result depends on the limit of memory, so the advice repeats it. */
	if (!is_default && b->best->shrunk && b->o->speed.memory != UINT64_MAX)
		snprintf(to + used, size - (size_t)used, " --memory %llu",
			 (unsigned long long)b->o->speed.memory);
	return to;
}

/* ---- JSON ----------------------------------------------------------------------------- */

static void json_setting(const struct setting *s)
{
	printf("\"transport\": \"%s\", \"rdma_op\": \"%s\", \"lanes\": %u, \"depth\": %u, "
	       "\"block_size\": %u",
	       transport_name((enum transport)s->transport), op_names[s->op], s->lanes, s->depth,
	       s->block_size);
}

static void json_point(const char *type, const struct point *p)
{
	printf("{\"v\": 1, \"type\": \"%s\", \"stage\": \"%s\", ", type, stage_name(p->stage));
	json_setting(&p->set);
	printf(", \"bytes\": %llu, \"seconds\": %.6f, \"bytes_per_second\": %.0f, \"shrunk\": %s, "
	       "\"wire\": ",
	       (unsigned long long)p->bytes, (double)p->ns / 1e9, point_rate(p),
	       p->shrunk ? "true" : "false");
	json_text(stdout, p->how);
	printf(", \"encrypted\": \"%s\"}\n", encrypted_name(p->encrypted));
}

static void json_best(const struct bench *b)
{
	char options[OPTIONS_TEXT];

	printf(", \"best\": {");
	json_setting(&b->best->set);
	printf("}, \"options\": \"%s\", \"bytes_per_second\": %.0f, \"by_itself\": %.0f, ",
	       setting_options(b, &b->advice->set, options, sizeof options), point_rate(b->best),
	       point_rate(&b->by_itself));
	printf("\"link\": ");
	json_text(stdout, b->limit.name);
	printf(", \"link_bytes_per_second\": %.0f, \"latency_seconds\": {", b->limit.rate);
	for (unsigned i = 0; i < b->latency_count; i++)
		printf("%s\"%s\": %.9f", i ? ", " : "",
		       transport_name((enum transport)b->latency[i].set.transport),
		       point_latency(&b->latency[i]));
	putchar('}');
}

/* The result, the failure, or both if only the plot failed. */
static void json_summary(const struct bench *b)
{
	printf("{\"v\": 1, \"type\": \"summary\", \"program\": \"rdbench\", \"exit\": %d",
	       (int)b->failure.code);
	if (b->by_itself.ns)
		json_best(b);
	if (b->failure.code != OUT_DONE) {
		printf(", \"error\": ");
		json_text(stdout, b->failure.text);
		printf(", \"host\": ");
		json_text(stdout, b->failed_host);
	}
	puts("}");
}

/* ---- the table -------------------------------------------------------------------------- */

/* Slow rates get more digits. */
char *rate_text(double rate, char *to, size_t size)
{
	double g = rate / 1e9;

	snprintf(to, size, "%.*f",
		 g >= 100     ? 1
		 : g >= 10    ? 2
		 : g >= 0.01  ? 3
		 : g >= 0.001 ? 4
			      : 5,
		 g);
	return to;
}

static void text_start(const struct bench *b)
{
	char host[HOST_MAX * 4];

	if (b->host[0])
		printf("from this host to %s", escape(host, sizeof host, b->host, strlen(b->host)));
	else
		printf("within this host");
	printf(", %.3g s a point\n", b->o->measure.ms / 1000.0);
	if (!b->o->measure.source && !b->o->measure.target)
		printf("disks are not measured; use --source and --target\n");
}

static void text_head(const struct series *s)
{
	char block[16];

	printf("\n%-*s", LABEL, "memory to memory, GB/s");
	for (unsigned i = 0; i < s->count; i++)
		printf("%*s", CELL_WIDTH,
		       block_text(s->points[i].set.block_size, block, sizeof block));
	putchar('\n');
}

static void text_series(const struct bench *b, const struct series *s)
{
	char set[64], rate[RATE_TEXT];

	if (s == &b->series[0])
		text_head(s);
	printf("  %-*s", LABEL - 2, setting_text(&s->set, set, sizeof set));
	for (unsigned i = 0; i < s->count; i++)
		printf("%*s%s", CELL_WIDTH - s->points[i].shrunk,
		       rate_text(point_rate(&s->points[i]), rate, sizeof rate),
		       s->points[i].shrunk ? "*" : "");
	putchar('\n');
}

static void text_again(const struct point *p, bool first)
{
	char set[64], rate[RATE_TEXT];

	if (first)
		printf("\n%-*s\n", LABEL, "the fastest, measured twice, GB/s");
	printf("  %-*s%*s\n", LABEL - 2, setting_text(&p->set, set, sizeof set), CELL_WIDTH,
	       rate_text(point_rate(p), rate, sizeof rate));
}

static void text_latency(const struct bench *b)
{
	printf("\n%-*s\n", LABEL, "latency of a 4k block and its credit");
	for (unsigned i = 0; i < b->latency_count; i++)
		printf("  %-*s%*.1f us\n", LABEL - 2,
		       transport_name((enum transport)b->latency[i].set.transport), CELL_WIDTH,
		       point_latency(&b->latency[i]) * 1e6);
}

static void text_stage(const struct bench *b, const struct point *p)
{
	static const char *const notes[STAGES] = {
		[STAGE_NETWORK] = "lanes alone, without hashes",
		[STAGE_MEMORY] = "the same, with the hashes of a copy",
		[STAGE_TARGET] = "until all data is on disk",
		[STAGE_END_TO_END] = "from disk to disk",
	};
	bool first = p->stage == (b->o->measure.source ? STAGE_SOURCE : STAGE_NETWORK);
	char set[64], name[40], size[32], rate[RATE_TEXT];

	if (first)
		printf("\n%s\n", setting_text(&b->best->set, set, sizeof set));
	snprintf(name, sizeof name, "%s, GB/s", stage_name(p->stage));
	printf("  %-*s%*s  ", LABEL - 2, name, CELL_WIDTH,
	       rate_text(point_rate(p), rate, sizeof rate));
	if (p->stage == STAGE_SOURCE)
		printf("%s read", size_text(p->bytes, size, sizeof size));
	else
		printf("%s", notes[p->stage]);
	putchar('\n');
}

static enum bench_stage find_slowest_stage(const struct bench *b)
{
	enum bench_stage least = STAGE_MEMORY;

	for (enum bench_stage s = STAGE_SOURCE; s <= STAGE_TARGET; s++) {
		if (b->stages[s].ns && point_rate(&b->stages[s]) < point_rate(&b->stages[least]))
			least = s;
	}
	return least;
}

bool any_shrunk(const struct bench *b)
{
	for (unsigned i = 0; i < b->series_count; i++) {
		for (unsigned k = 0; k < b->series[i].count; k++) {
			if (b->series[i].points[k].shrunk)
				return true;
		}
	}
	return false;
}

static void text_summary(const struct bench *b)
{
	double best = point_rate(b->best), itself = point_rate(&b->by_itself);
	char options[OPTIONS_TEXT], rate[RATE_TEXT];

	putchar('\n');
	if (any_shrunk(b))
		printf("* with fewer lanes or less depth, because memory is limited (ulimit "
		       "-l, --memory)\n");
	if (b->limit.rate > 0)
		printf("limit of the link, %s: %s GB/s; the best point reached %.0f %% of it\n",
		       b->limit.name, rate_text(b->limit.rate, rate, sizeof rate),
		       100 * best / b->limit.rate);
	if (b->stages[STAGE_END_TO_END].ns)
		printf("slowest stage from disk to disk: %s\n",
		       find_slowest_stage(b) == STAGE_MEMORY ? "memory to memory"
							     : stage_name(find_slowest_stage(b)));
	if (itself > 0)
		printf("rdcp without options reaches %s GB/s, %.0f %% of the best\n",
		       rate_text(itself, rate, sizeof rate), 100 * itself / best);
	setting_options(b, &b->advice->set, options, sizeof options);
	printf("best: %s\n", *options ? options + strspn(options, " ") : "no options");
}

/* ---- text or JSON ----------------------------------------------------------------------- */

/* Each line is flushed, so that lines of the log and the live line do not break it. */

void print_start(const struct bench *b)
{
	if (b->o->output.json) {
		printf("{\"v\": 1, \"type\": \"start\", \"program\": \"rdbench\", \"host\": ");
		json_text(stdout, b->host);
		printf(", \"seconds\": %.3f}\n", b->o->measure.ms / 1000.0);
	} else {
		text_start(b);
	}
	process_flush_stdout();
}

void print_point(const struct bench *b, const struct point *p)
{
	if (b->o->output.json)
		json_point("point", p);
	process_flush_stdout();
}

void print_series(const struct bench *b, const struct series *s)
{
	if (!b->o->output.json)
		text_series(b, s);
	process_flush_stdout();
}

void print_again(const struct bench *b, const struct point *p, bool first)
{
	if (b->o->output.json)
		json_point("again", p);
	else
		text_again(p, first);
	process_flush_stdout();
}

void print_latency(const struct bench *b)
{
	if (!b->o->output.json)
		text_latency(b);
	process_flush_stdout();
}

void print_stage(const struct bench *b, const struct point *p)
{
	if (b->o->output.json)
		json_point("stage", p);
	else
		text_stage(b, p);
	process_flush_stdout();
}

void print_summary(const struct bench *b)
{
	if (b->o->output.json)
		json_summary(b);
	else if (b->by_itself.ns)
		text_summary(b);
	process_flush_stdout();
}
