/* SPDX-License-Identifier: Apache-2.0 */
/* What limited a transfer: the times of both ends go in, the name of a stage comes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Included before cmocka, whose macro fail is used here. */
#include "cmd/output/report.h"
#include "cmd/output/stats.h"

#include <cmocka.h>

#define S UINT64_C(1000000000)
#define MIB (UINT64_C(1) << 20)

/* Two lanes that ran for ten seconds each: tenths of a second, summed over the lanes. */
struct given {
	const char *name; /* the expected name */
	unsigned fill, free, send, idle, paced, encrypt, compress;
	unsigned block, store, sink_paced, decrypt;
	unsigned finish; /* of the sink as a whole, not of each lane */
	unsigned source_cpu, source_queued, sink_cpu, sink_queued; /* also summed over the lanes */
	unsigned source_kind, sink_kind, cpus;
	bool same_host;
	uint32_t rtt_us;
	uint64_t window, moved;
	uint64_t bwlimit;
};

static uint64_t tenths(unsigned n)
{
	return n * (S / 10);
}

static void find(const struct given *g, struct bound *b)
{
	struct msg_times source = {
		.kind = (uint8_t)g->source_kind,
		.same_host = g->same_host,
		.used = g->fill + g->free + g->idle + g->paced ? 2 : 0,
		.cpus = (uint16_t)(g->cpus ? g->cpus : 64),
		.rtt_us = g->rtt_us,
		.block = 256 << 10,
		.window = g->window ? g->window : 6 * MIB,
		.moved = g->moved ? g->moved : 10000 * MIB,
		.ns_fill = tenths(g->fill),
		.ns_free = tenths(g->free),
		.ns_send = tenths(g->send),
		.ns_idle = tenths(g->idle),
		.ns_paced = tenths(g->paced),
		.ns_cipher = tenths(g->encrypt),
		.ns_compress = tenths(g->compress),
		.ns_cpu = tenths(g->source_cpu),
		.ns_hottest = tenths(g->source_cpu + g->source_queued) / 2,
		.ns_busiest = tenths(g->fill) / 2,
		.ns_longest = tenths(g->fill + g->free + g->send + g->idle + g->paced) / 2,
	};
	struct msg_times sink = {
		.kind = (uint8_t)g->sink_kind,
		.same_host = g->same_host,
		.used = g->block + g->store ? 2 : 0,
		.cpus = (uint16_t)(g->cpus ? g->cpus : 64),
		.block = 256 << 10,
		.ns_paced = tenths(g->sink_paced),
		.ns_cipher = tenths(g->decrypt),
		.ns_block = tenths(g->block),
		.ns_store = tenths(g->store),
		.ns_finish = tenths(g->finish),
		.ns_cpu = tenths(g->sink_cpu),
		.ns_hottest = tenths(g->sink_cpu + g->sink_queued) / 2,
		.ns_busiest = tenths(g->store) / 2,
		.ns_longest = tenths(g->block + g->store + g->sink_paced) / 2,
	};
	struct bound_facts facts = {
		.source = &source,
		.sink = &sink,
		.bwlimit = g->bwlimit,
	};

	bound_find(&facts, b);
}

static const struct given cases[] = {
	/* An end that is busy and waits for nothing else. */
	{"source disk", .fill = 195, .free = 5, .block = 190, .store = 10,
	 .source_kind = KIND_DISK},
	{"source pipe", .fill = 195, .free = 5, .block = 190, .store = 10,
	 .source_kind = KIND_PIPE},
	{"source memory", .fill = 195, .free = 5, .block = 190, .store = 10,
	 .source_kind = KIND_MEMORY},
	{"source", .fill = 195, .free = 5, .block = 190, .store = 10},
	{"target disk", .fill = 10, .free = 100, .send = 90, .block = 6, .store = 194,
	 .sink_kind = KIND_DISK},
	{"target pipe", .fill = 10, .free = 190, .block = 6, .store = 194, .sink_kind = KIND_PIPE},
	/* Both overlap: the busier one counts. */
	{"source disk", .fill = 150, .free = 50, .block = 60, .store = 140,
	 .source_kind = KIND_DISK},
	{"target disk", .fill = 140, .free = 60, .block = 50, .store = 150, .sink_kind = KIND_DISK},
	/* Both wait. */
	{"network", .fill = 10, .free = 20, .send = 170, .block = 190, .store = 10},
	{"network", .fill = 10, .free = 190, .block = 190, .store = 10},
	{"network", .fill = 90, .free = 110, .block = 120, .store = 80},
	/* The same with a round-trip time: the window is 6 MiB, and the rate was 100 MiB/s. */
	{"network", .fill = 1, .free = 199, .block = 199, .store = 1, .rtt_us = 1000,
	 .moved = 1000 * MIB},
	{"network", .fill = 1, .free = 199, .block = 199, .store = 1, .rtt_us = 40000,
	 .moved = 1000 * MIB},
	{"window", .fill = 1, .free = 199, .block = 199, .store = 1, .rtt_us = 59000,
	 .moved = 1000 * MIB},
	/* One block per lane: nothing overlaps, and no stage is busy for long. */
	{"window", .fill = 80, .free = 120, .block = 115, .store = 85, .window = MIB / 2},
	{"network", .fill = 80, .free = 120, .block = 115, .store = 85, .window = 2 * MIB},
	/*
	 * The sink is slow to answer questions, and so is busy; or its answers take long to arrive.
	 */
	{"target disk", .fill = 20, .idle = 180, .block = 10, .store = 190, .sink_kind = KIND_DISK},
	{"network", .fill = 20, .idle = 180, .block = 190, .store = 10},
	/* After END the sink works alone: it deletes, sets times and waits for the disk. */
	{"target disk", .fill = 195, .free = 5, .block = 190, .store = 10, .finish = 200,
	 .source_kind = KIND_DISK, .sink_kind = KIND_DISK},
	{"source disk", .fill = 195, .free = 5, .block = 190, .store = 10, .finish = 20,
	 .source_kind = KIND_DISK, .sink_kind = KIND_DISK},
	/* Limited by the user: most of the time, or to exactly this rate. */
	{"--bwlimit", .fill = 10, .paced = 190, .block = 195, .store = 5},
	{"--bwlimit", .fill = 90, .free = 10, .paced = 100, .block = 110, .store = 90},
	{"--bwlimit", .fill = 150, .paced = 50, .block = 110, .store = 90, .moved = 95 * MIB,
	 .bwlimit = 10 * MIB},
	{"source disk", .fill = 150, .paced = 50, .block = 110, .store = 90, .moved = 85 * MIB,
	 .bwlimit = 10 * MIB, .source_kind = KIND_DISK},
	{"source disk", .fill = 199, .block = 110, .store = 90, .moved = 95 * MIB,
	 .bwlimit = 10 * MIB, .source_kind = KIND_DISK},
	{"target disk", .fill = 10, .paced = 50, .free = 140, .block = 10, .store = 190,
	 .sink_kind = KIND_DISK},
	{"--bwlimit", .fill = 10, .free = 190, .block = 4, .store = 6, .sink_paced = 190},
	/* Threads that compute wait for nothing, on either host. */
	{"processors", .fill = 195, .free = 5, .block = 190, .store = 10, .source_cpu = 190},
	{"processors", .fill = 10, .free = 190, .block = 100, .store = 100, .sink_cpu = 185},
	{"target disk", .fill = 10, .free = 190, .block = 10, .store = 190, .sink_cpu = 100,
	 .sink_kind = KIND_DISK},
	/* Nor do threads that wait for a processor. */
	{"processors", .fill = 10, .free = 190, .block = 100, .store = 100, .sink_cpu = 90,
	 .sink_queued = 100},
	/* Two processors for two threads at each end, on one host or on two. */
	{"processors", .fill = 60, .free = 60, .send = 80, .block = 100, .store = 100,
	 .source_cpu = 90, .sink_cpu = 95, .cpus = 2, .same_host = true},
	{"network", .fill = 60, .free = 60, .send = 80, .block = 105, .store = 95, .source_cpu = 90,
	 .sink_cpu = 95, .cpus = 2},
	{"processors", .fill = 60, .free = 60, .send = 80, .block = 105, .store = 95,
	 .source_cpu = 20, .sink_cpu = 95, .cpus = 1},
	/* On one host the network cannot be slow, but a process between the ends can be. */
	{"processors", .fill = 20, .free = 80, .send = 100, .block = 190, .store = 10,
	 .source_cpu = 110, .sink_cpu = 100, .same_host = true},
	{"network", .fill = 20, .free = 80, .send = 100, .block = 190, .store = 10,
	 .source_cpu = 110, .sink_cpu = 100},
	{"network", .fill = 20, .free = 80, .send = 100, .block = 190, .store = 10,
	 .source_cpu = 30, .sink_cpu = 20, .same_host = true},
	/* What takes the most time of a lane, also if that fills a processor. */
	{"compression", .fill = 40, .free = 10, .send = 150, .compress = 130, .block = 180,
	 .store = 20},
	{"compression", .fill = 20, .free = 10, .send = 170, .compress = 80, .encrypt = 75,
	 .block = 180, .store = 20},
	{"encryption", .fill = 20, .free = 10, .send = 170, .compress = 70, .encrypt = 95,
	 .block = 180, .store = 20},
	{"source disk", .fill = 110, .send = 90, .compress = 85, .block = 180, .store = 20,
	 .source_kind = KIND_DISK},
	{"encryption", .fill = 40, .free = 10, .send = 150, .encrypt = 130, .block = 180,
	 .store = 20, .decrypt = 90},
	{"encryption", .fill = 20, .free = 150, .send = 30, .encrypt = 25, .block = 180,
	 .store = 20, .decrypt = 140},
	{"encryption", .fill = 50, .send = 150, .encrypt = 145, .block = 180, .store = 20,
	 .decrypt = 90, .source_cpu = 195},
	{"processors", .fill = 110, .send = 90, .encrypt = 85, .block = 180, .store = 20,
	 .decrypt = 90, .source_cpu = 195},
	{"source disk", .fill = 110, .send = 90, .encrypt = 85, .block = 180, .store = 20,
	 .decrypt = 90, .source_kind = KIND_DISK},
	{"network", .fill = 20, .free = 60, .send = 120, .encrypt = 50, .block = 190, .store = 10,
	 .decrypt = 45},
	{"--bwlimit", .fill = 10, .paced = 160, .send = 30, .encrypt = 28, .block = 195, .store = 5,
	 .decrypt = 25},
	/* A limit that the user set precedes them. */
	{"--bwlimit", .fill = 10, .paced = 190, .block = 100, .store = 100, .sink_cpu = 185},
	/* One end sends no times. */
	{"source disk", .fill = 120, .free = 80, .source_kind = KIND_DISK},
	{"network or target", .fill = 10, .free = 190},
	{"target disk", .block = 80, .store = 120, .sink_kind = KIND_DISK},
	{"network or source", .block = 190, .store = 10},
	{"nothing that could be measured", .source_cpu = 1},
};

static void bound_follows_from_the_times(void **state)
{
	struct bound b;

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		find(&cases[i], &b);
		if (strcmp(b.name, cases[i].name) != 0)
			fail_msg("case %u: %s (source %.2f, network %.2f, sink %.2f, held back "
				 "%.2f, processors %.2f), not %s",
				 i, b.name, b.source, b.network, b.sink, b.held_back, b.processors,
				 cases[i].name);
	}
}

static void short_runs_are_not_measured(void **state)
{
	struct msg_times source = {.used = 1, .ns_longest = S / 21}, sink = {0};
	struct bound_facts facts = {.source = &source, .sink = &sink};
	struct bound b;

	(void)state;
	bound_find(&facts, &b);
	assert_false(b.found);
	assert_string_equal(b.name, "nothing that could be measured");
	source.ns_longest = S / 19;
	bound_find(&facts, &b);
	assert_true(b.found);
	source.ns_longest = 0;
	bound_find(&facts, &b);
	assert_false(b.found);
	sink.ns_finish = S / 19;
	bound_find(&facts, &b);
	assert_true(b.found);
}

/*
 * One lane does all the work, as when comparing one file: the waiting of the others does not count.
 */
static void busiest_lane_decides(void **state)
{
	struct msg_times source = {.kind = KIND_DISK,
				   .used = 4,
				   .ns_free = 40 * S,
				   .ns_busiest = 0,
				   .ns_longest = 10 * S};
	struct msg_times sink = {.kind = KIND_DISK,
				 .used = 4,
				 .cpus = 64,
				 .ns_block = 31 * S,
				 .ns_store = 9 * S,
				 .ns_busiest = 9 * S,
				 .ns_longest = 10 * S,
				 .ns_cpu = 5 * S,
				 .ns_hottest = 5 * S};
	struct bound_facts facts = {.source = &source, .sink = &sink};
	struct bound b;

	(void)state;
	bound_find(&facts, &b);
	assert_string_equal(b.name, "target disk");
	assert_true(b.sink > 0.89 && b.sink < 0.91);
	sink.ns_hottest = sink.ns_cpu = 95 * S / 10;
	bound_find(&facts, &b);
	assert_string_equal(b.name, "processors");
}

static void any_times_from_a_peer_are_tolerated(void **state)
{
	struct msg_times most, zero = {0};
	struct bound_facts facts = {
		.source = &most,
		.sink = &most,
	};
	struct bound b;

	(void)state;
	memset(&most, 0xff, sizeof most);
	most.kind = KIND_MEMORY;
	most.same_host = true;
	bound_find(&facts, &b);
	assert_true(b.source >= 0 && b.source <= 1 && b.sink >= 0 && b.sink <= 1);
	assert_true(b.network >= 0 && b.network <= 1 && b.processors <= 1 && b.held_back <= 1);
	facts.sink = &zero;
	bound_find(&facts, &b);
	assert_true(b.sink < 0 && b.network >= 0);
}

static const char *said(const struct bound *b, void (*say)(const struct bound *b, FILE *to))
{
	static char text[512];
	FILE *to = fmemopen(text, sizeof text, "w");

	say(b, to);
	fclose(to);
	return text;
}

static void bound_is_printed_with_its_numbers(void **state)
{
	const struct given windowed = {"window",           .fill = 1,  .free = 199,
				       .block = 196,       .store = 4, .rtt_us = 59000,
				       .moved = 1000 * MIB};
	const struct given disk = {"target disk", .fill = 24,   .free = 176,
				   .block = 6,    .store = 194, .sink_kind = KIND_DISK,
				   .sink_cpu = 20};
	const struct given sealed = {"encryption",   .fill = 40,   .free = 10,  .send = 150,
				     .encrypt = 130, .block = 180, .store = 20, .decrypt = 90};
	const struct given held = {"--bwlimit", .fill = 10, .paced = 190, .block = 195, .store = 5};
	const struct given alone = {"source disk", .fill = 120, .free = 80,
				    .source_kind = KIND_DISK};
	struct bound b;

	(void)state;
	find(&windowed, &b);
	assert_string_equal(said(&b, bound_print),
			    "window (source busy 0 %, network 98 %, sink busy 2 %; window 6.00 "
			    "MiB, round trip 59 ms)");
	find(&disk, &b);
	assert_string_equal(said(&b, bound_print),
			    "target disk (source busy 12 %, network 3 %, sink busy 97 %)");
	assert_string_equal(
		said(&b, bound_json),
		", \"bound_by\": \"target disk\", \"source_busy\": 0.120, "
		"\"compression\": 0.000, \"encryption\": 0.000, \"network\": 0.030, \"sink_busy\": 0.970, \"held_back\": 0.000, \"processors\": "
		"0.100, \"window\": 6291456, \"round_trip_us\": 0");
	find(&sealed, &b);
	assert_string_equal(said(&b, bound_print), "encryption (source busy 20 %, encryption 65 %, "
						   "network 15 %, sink busy 10 %)");
	find(&held, &b);
	assert_string_equal(said(&b, bound_print), "--bwlimit (source busy 5 %, network 0 %, sink "
						   "busy 2 %, held back 95 %)");
	find(&alone, &b);
	assert_string_equal(said(&b, bound_print), "source disk (source busy 60 %, network 40 %)");
	assert_non_null(strstr(said(&b, bound_json), "\"sink_busy\": null"));
}

static void sessions_add_up(void **state)
{
	struct msg_times all = {0}, none = {0};
	struct msg_times first = {.kind = KIND_DISK,
				  .used = 2,
				  .ns_fill = 1,
				  .ns_store = 2,
				  .moved = 3,
				  .ns_cipher = 4};
	struct msg_times second = {.kind = KIND_PIPE,
				   .used = 1,
				   .ns_fill = 10,
				   .ns_store = 20,
				   .moved = 30,
				   .ns_cpu = 40,
				   .ns_cipher = 50};

	(void)state;
	times_join(&all, &first);
	times_join(&all, &second);
	times_join(&all, &none);
	assert_int_equal(all.kind, KIND_PIPE);
	assert_int_equal(all.used, 2);
	assert_int_equal(all.ns_fill, 11);
	assert_int_equal(all.ns_store, 22);
	assert_int_equal(all.moved, 33);
	assert_int_equal(all.ns_cpu, 40);
	assert_int_equal(all.ns_cipher, 54);
}

static unsigned writes;

static ssize_t count_write(void *cookie, const char *from, size_t len)
{
	(void)cookie;
	(void)from;
	writes++;
	return (ssize_t)len;
}

/* Other processes write to the same terminal or file. */
static void report_is_one_write(void **state)
{
	static void (*const prints[])(const struct report *r,
				      FILE *to) = {report_verbose, report_json, stats_print};
	const cookie_io_functions_t io = {.write = count_write};
	const struct report r = {
		.program = "rdcp", .lanes = 2, .ns = S, .how = "tcp 10.0.0.1:7000"};

	(void)state;
	for (unsigned i = 0; i < sizeof prints / sizeof *prints; i++) {
		FILE *to = fopencookie(NULL, "w", io);

		assert_non_null(to);
		setvbuf(to, NULL, _IONBF, 0); /* unbuffered, as stderr is */
		writes = 0;
		prints[i](&r, to);
		fclose(to);
		assert_int_equal(writes, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bound_follows_from_the_times),
		cmocka_unit_test(short_runs_are_not_measured),
		cmocka_unit_test(busiest_lane_decides),
		cmocka_unit_test(any_times_from_a_peer_are_tolerated),
		cmocka_unit_test(bound_is_printed_with_its_numbers),
		cmocka_unit_test(sessions_add_up),
		cmocka_unit_test(report_is_one_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
