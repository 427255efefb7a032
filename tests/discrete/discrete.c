/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes over links that this machine does not have, in virtual time. Prints one JSON object. The
 * same options give the same output, to the byte.
 */

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include "base/fail.h"
#include "model_session.h"
#include "scheduler.h"
#include "session/connect/sizing.h"
#include "session/session_impl.h"
#include "stage.h"

static const char usage[] =
	"usage: discrete [options]\n"
	"  --rate=GBITS --rtt=USEC         the link   (100, 5)\n"
	"  --lanes=N --depth=N --block-kib=N   those not given are what a session chooses\n"
	"  --lockable-mib=N --cores=N --memory-gib=N   for that   (unlimited, 64, 64)\n"
	"  --unmeasured                    for that, the round-trip time is not known\n"
	"  --blocks=N                      to move; 0: until the rate is steady   (0)\n"
	"  --cost=[END.]STAGE=CALL_NS,BYTE_NS   source or sink; fill, store, digest, lane, post,\n"
	"                                  completion, credit, wake or register   (0,0)\n"
	"  --spin=USEC                     how long a thread polls before it sleeps   (30)\n"
	"  --slow=LANE,FACTOR              this lane's sink stores so much more slowly\n"
	"  --pause=BLOCK,SECONDS           lane 0's sink stores this block so much longer\n"
	"  --lose=BLOCK,TIMES,NOTICE_MS    lane 0 loses its wire at this block; 0 ms: silently\n"
	"  --timeout=MS                    (15000)\n";

/* Windows to leave out at the start, and those and blocks to measure at least. */
enum { WINDOWS_SETTLE = 2, WINDOWS_LEAST = 8, BLOCKS_LEAST = 1000 };

static double rate_gbits = 100, rtt_us = 5;
static struct sizing_for host = {.links = 1,
				 .rdma = true,
				 .cores = 64,
				 .lockable = UINT64_MAX,
				 .memory = UINT64_C(64) << 30};
static struct sizing size;
static bool unmeasured;
static struct transfer transfer = {
	.slow_factor = 1,
	.pauses_at = UINT64_MAX,
	.loss.at = UINT64_MAX,
	.timeout_ms = 15000,
};

enum choice {
	OPT_RATE = 1,
	OPT_RTT,
	OPT_LANES,
	OPT_DEPTH,
	OPT_BLOCK,
	OPT_LOCKABLE,
	OPT_CORES,
	OPT_MEMORY,
	OPT_UNMEASURED,
	OPT_BLOCKS,
	OPT_COST,
	OPT_SPIN,
	OPT_SLOW,
	OPT_PAUSE,
	OPT_LOSE,
	OPT_TIMEOUT,
};

static const struct option options[] = {
	{"rate", required_argument, NULL, OPT_RATE},
	{"rtt", required_argument, NULL, OPT_RTT},
	{"lanes", required_argument, NULL, OPT_LANES},
	{"depth", required_argument, NULL, OPT_DEPTH},
	{"block-kib", required_argument, NULL, OPT_BLOCK},
	{"lockable-mib", required_argument, NULL, OPT_LOCKABLE},
	{"cores", required_argument, NULL, OPT_CORES},
	{"memory-gib", required_argument, NULL, OPT_MEMORY},
	{"unmeasured", no_argument, NULL, OPT_UNMEASURED},
	{"blocks", required_argument, NULL, OPT_BLOCKS},
	{"cost", required_argument, NULL, OPT_COST},
	{"spin", required_argument, NULL, OPT_SPIN},
	{"slow", required_argument, NULL, OPT_SLOW},
	{"pause", required_argument, NULL, OPT_PAUSE},
	{"lose", required_argument, NULL, OPT_LOSE},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{0},
};

static bool take_pause(const char *word)
{
	double seconds;

	if (sscanf(word, "%" SCNu64 ",%lf", &transfer.pauses_at, &seconds) != 2)
		return false;
	transfer.pause_ps = (uint64_t)(seconds * 1e12);
	return true;
}

static bool take_loss(const char *word)
{
	double notice_ms;

	if (sscanf(word, "%" SCNu64 ",%u,%lf", &transfer.loss.at, &transfer.losses, &notice_ms) !=
	    3)
		return false;
	transfer.loss.notice_ps = (uint64_t)(notice_ms * (double)PS_PER_MS);
	return true;
}

static bool take_option(int which, const char *word)
{
	unsigned long n = strtoul(word, NULL, 10);

	switch ((enum choice)which) {
	case OPT_RATE:
		return (rate_gbits = atof(word)) > 0;
	case OPT_RTT:
		return (rtt_us = atof(word)) >= 0;
	case OPT_LANES:
		return (size.lanes = (unsigned)n) > 0 && n <= LANE_COUNT_MAX;
	case OPT_DEPTH:
		return (size.depth = (uint32_t)n) > 0;
	case OPT_BLOCK:
		return (size.block_size = (uint32_t)n << 10) > 0;
	case OPT_LOCKABLE:
		return (host.lockable = (uint64_t)n << 20) > 0;
	case OPT_CORES:
		return (host.cores = (unsigned)n) > 0;
	case OPT_MEMORY:
		return (host.memory = (uint64_t)n << 30) > 0;
	case OPT_UNMEASURED:
		return unmeasured = true;
	case OPT_BLOCKS:
		transfer.blocks = n;
		return true;
	case OPT_COST:
		return stage_parse(word);
	case OPT_SPIN:
		spin_ps = (uint64_t)(atof(word) * 1e6);
		return true;
	case OPT_SLOW:
		return sscanf(word, "%u,%lf", &transfer.slow_lane, &transfer.slow_factor) == 2;
	case OPT_PAUSE:
		return take_pause(word);
	case OPT_LOSE:
		return take_loss(word);
	case OPT_TIMEOUT:
		return (transfer.timeout_ms = (int)n) > 0;
	}
	return false;
}

static void parse_options(int argc, char **argv)
{
	int which;

	while ((which = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (!take_option(which, optarg ? optarg : "")) {
			fputs(usage, stderr);
			exit(2);
		}
	if (optind < argc) {
		fputs(usage, stderr);
		exit(2);
	}
}

/* What two ends like this one propose, and agree on. */
static void agree_sizes(void)
{
	struct msg_hello source = {.role = ROLE_SOURCE,
				   .memory = UINT64_MAX,
				   .timeout_ms = 15000,
				   .encrypt = ENCRYPT_OFF};
	struct msg_hello sink;
	struct terms terms;

	host.rate = (uint64_t)(rate_gbits * 1000);
	host.rtt_us = unmeasured ? 0 : (uint32_t)rtt_us;
	sizing_choose(&host, &size);
	source.lanes = (uint16_t)size.lanes;
	source.depth = (uint16_t)size.depth;
	source.block_size = size.block_size;
	source.lockable = host.lockable;
	sink = source;
	sink.role = ROLE_SINK;
	if (terms_agree(&source, &sink, &terms)) {
		fprintf(stderr, "discrete: %s\n", failed()->text);
		exit(1);
	}
	transfer.lanes = terms.lanes;
	transfer.depth = terms.depth;
	transfer.block_size = terms.block_size;
}

/* R = min(B, N C / (RTT + C / B)), in bytes a second. */
static double window_law(double window)
{
	double most = rate_gbits * 1e9 / 8, block = transfer.block_size;
	double limited = window * block / (rtt_us / 1e6 + block / most);

	return limited < most ? limited : most;
}

/* Bytes a second, from the block that was stored as the number `from' to the one as `to'. */
static double rate_between(const struct transfer_result *r, uint64_t from, uint64_t to)
{
	double seconds = (double)(r->stored_ps[to] - r->stored_ps[from]) / 1e12;

	return (double)(to - from) * transfer.block_size / seconds;
}

static void print_stages(void)
{
	static const char *const sides[] = {[LANE_SOURCE] = "source", [LANE_SINK] = "sink"};

	for (unsigned side = LANE_SOURCE; side <= LANE_SINK; side++) {
		printf(", \"%s_ns\": {", sides[side]);
		for (unsigned s = 0; s < STAGE_COUNT; s++)
			printf("%s\"%s\": %" PRIu64, s ? ", " : "", stage_name(s),
			       stage_spent_ps(side, s) / PS_PER_NS);
		printf("}");
	}
}

static void print_result(const struct transfer_result *r, uint64_t settle, uint64_t last)
{
	double law = window_law((double)transfer.lanes * transfer.depth);

	printf("{\"rate_gbits\": %g, \"rtt_us\": %g, \"lanes\": %u, \"depth\": %u, \"block\": %u, "
	       "\"blocks\": %" PRIu64 ", \"law\": %.0f, ",
	       rate_gbits, rtt_us, transfer.lanes, transfer.depth, transfer.block_size,
	       transfer.blocks, law);
	if (r->failed) {
		printf("\"end_ns\": %" PRIu64 ", \"failed\": \"%s\"}\n", r->end_ps / PS_PER_NS,
		       r->why);
		return;
	}
	if (last > settle)
		printf("\"reached\": %.0f, ", rate_between(r, settle, last));
	printf("\"whole\": %.0f, \"end_ns\": %" PRIu64 ", \"credits\": %" PRIu64
	       ", \"resent\": %" PRIu64 ", \"epochs\": %u, \"paused_ns\": %" PRIu64
	       ", \"blocks_by_lane\": [",
	       (double)transfer.blocks * transfer.block_size / ((double)r->end_ps / 1e12),
	       r->end_ps / PS_PER_NS, r->credits, r->resent, r->epochs, r->paused_ps / PS_PER_NS);
	for (unsigned i = 0; i < transfer.lanes; i++)
		printf("%s%" PRIu64, i ? ", " : "", r->by_lane[i]);
	printf("]");
	print_stages();
	printf("}\n");
}

int main(int argc, char **argv)
{
	struct transfer_result result;
	uint64_t window, settle = 0, last = 0;

	/* Only heads are written: with huge pages whole pools would be. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	spin_ps = 30 * PS_PER_NS * 1000;
	parse_options(argc, argv);
	agree_sizes();
	transfer.link.mbits = (uint64_t)(rate_gbits * 1000);
	transfer.link.latency_ps = (uint64_t)(rtt_us * 1e6 / 2);
	window = (uint64_t)transfer.lanes * transfer.depth;
	/* Blocks come in bursts, one window in a round trip: so whole windows are counted. */
	if (transfer.blocks == 0) {
		uint64_t windows = (BLOCKS_LEAST + window - 1) / window;

		settle = WINDOWS_SETTLE * window;
		last = settle + window * (windows > WINDOWS_LEAST ? windows : WINDOWS_LEAST);
		transfer.blocks = last + 2 * window;
	}
	transfer_run(&transfer, &result);
	print_result(&result, settle, last);
	transfer_result_free(&result);
	return result.failed;
}
