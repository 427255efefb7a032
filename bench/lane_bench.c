/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes alone, memory to memory, over TCP loopback: how fast blocks move when nobody reads or
 * writes files.  Source and sink are two processes, or two sets of threads of one (-t).
 */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "lane/connect.h"
#include "lane/hello.h"

enum { LANES_MAX = 64, CONNECT_MS = 10000 };

static const char usage[] = "usage: lane_bench [-l LANES] [-d DEPTH] [-b BLOCK_KIB] [-s SECONDS] "
			    "[-n] [-t] [-w]\n"
			    "  -n  no hashes   -t  threads, not processes\n"
			    "  -w  touch each block at the source, as one that reads would\n";

static struct {
	unsigned lanes;
	uint32_t depth, block_size;
	double seconds;
	bool unchecked, threads, touch;
} opts = {.lanes = 2, .depth = 12, .block_size = 256 << 10, .seconds = 3};

static const struct lane_key key = {.secret = "lane_bench"};

/* One lane at one end. */
struct end {
	unsigned index;
	enum lane_side side;
	int listener; /* sink */
	union address at; /* source */
	struct lane_stats stats;
	uint64_t end_ns; /* source: after the flush */
	uint64_t start_ns; /* source: after the first block was lent */
	struct failure failure;
	pthread_t thread;
};

static int take(struct end *e, struct lane *l, uint32_t epoch, struct wire **out)
{
	struct pollfd p = {.fd = e->listener, .events = POLLIN};
	uint8_t hello[LANE_HELLO_SIZE];
	int fd;

	if (poll(&p, 1, CONNECT_MS) <= 0 || (fd = accept4(e->listener, NULL, NULL, 0)) < 0)
		return fail_as(OUT_CONNECT, "nobody comes");
	if (recv(fd, hello, sizeof hello, MSG_WAITALL) != sizeof hello ||
	    hello_heard(l, epoch, false, &key, hello)) {
		close_fd(fd);
		return fail_as(OUT_CONNECT, "the caller says nothing right");
	}
	return tcp_take(l, epoch, &key, fd, out);
}

static int connect_lane(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct end *e = ctx;
	struct wire *w;

	if (epoch > 0)
		return fail_as(OUT_PEER_LOST, "%s", why);
	if (e->side == LANE_SINK ? take(e, l, epoch, &w)
				 : tcp_dial(l, epoch, &key, &e->at, 1, clock_ms() + CONNECT_MS, &w))
		return -1;
	return lane_attach(l, w, 0);
}

static int pump_out(struct end *e, struct lane *l)
{
	uint64_t pos = 0, stop = 0;
	struct block *b;

	do {
		if (lane_get(l, &b))
			return -1;
		if (pos == 0) {
			e->start_ns = clock_ns();
			stop = e->start_ns + (uint64_t)(opts.seconds * 1e9);
		}
		b->kind = BLOCK_EXTENT;
		b->len = opts.block_size;
		b->pos = pos;
		if (opts.touch)
			memset(b->data, (int)(pos >> 18), b->len);
		pos += b->len;
		if (lane_send(l, b))
			return -1;
	} while (clock_ns() < stop);
	if (lane_flush(l))
		return -1;
	e->end_ns = clock_ns();
	return 0;
}

static int pump_in(struct lane *l)
{
	struct block *b;

	for (;;)
		if (lane_recv(l, &b) || lane_put(l, b))
			return -1;
}

static void *run_lane(void *arg)
{
	struct end *e = arg;
	struct lane_setup setup = {
		.index = e->index,
		.side = e->side,
		.depth = opts.depth,
		.block_size = opts.block_size,
		.unchecked = opts.unchecked,
		.mend = connect_lane,
		.mend_ctx = e,
	};
	struct lane *l;
	int rc;

	if (lane_open(&setup, &l)) {
		e->failure = *failed();
		return NULL;
	}
	rc = e->side == LANE_SOURCE ? pump_out(e, l) : pump_in(l);
	/* A sink ends when its source leaves. */
	if (rc && e->side == LANE_SOURCE)
		e->failure = *failed();
	lane_stats(l, &e->stats);
	lane_close(l);
	return NULL;
}

static void run_ends(struct end *ends, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (pthread_create(&ends[i].thread, NULL, run_lane, &ends[i]) != 0)
			abort();
	for (unsigned i = 0; i < count; i++)
		pthread_join(ends[i].thread, NULL);
}

static double cpu_seconds(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static int report(const struct end *source)
{
	uint64_t bytes = 0, first = UINT64_MAX, last = 0, ns_free = 0;
	double s;

	for (unsigned i = 0; i < opts.lanes; i++) {
		if (source[i].failure.code != OUT_DONE) {
			fprintf(stderr, "lane_bench: %s\n", source[i].failure.text);
			return 1;
		}
		bytes += source[i].stats.bytes;
		ns_free += source[i].stats.ns_free;
		first = source[i].start_ns < first ? source[i].start_ns : first;
		last = source[i].end_ns > last ? source[i].end_ns : last;
	}
	s = (double)(last - first) / 1e9;
	printf("lanes %u depth %u block %u KiB %s %s: %.3f GB/s, waiting for a free block %.0f%%, "
	       "cpu %.2f s/GB\n",
	       opts.lanes, opts.depth, opts.block_size >> 10, opts.unchecked ? "plain" : "hashed",
	       opts.threads ? "threads" : "processes", (double)bytes / s / 1e9,
	       (double)ns_free / 1e7 / s / opts.lanes,
	       (cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN)) / ((double)bytes / 1e9));
	return 0;
}

static int run(void)
{
	struct end ends[2 * LANES_MAX] = {0};
	struct end *source = ends, *sink = ends + opts.lanes;
	pid_t pid = 0;
	int rc;

	for (unsigned i = 0; i < opts.lanes; i++) {
		union address at = {
			.in4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
		unsigned port;

		source[i].index = sink[i].index = i;
		source[i].side = LANE_SOURCE;
		sink[i].side = LANE_SINK;
		sink[i].listener = tcp_listen(&at, 0, 0, &port);
		if (sink[i].listener < 0) {
			fprintf(stderr, "lane_bench: %s\n", failed()->text);
			return 1;
		}
		at.in4.sin_port = htons((uint16_t)port);
		source[i].at = at;
	}
	if (opts.threads) {
		run_ends(ends, 2 * opts.lanes);
		return report(source);
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		run_ends(sink, opts.lanes);
		_exit(0);
	}
	run_ends(source, opts.lanes);
	waitpid(pid, NULL, 0);
	rc = report(source);
	return rc;
}

int main(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "l:d:b:s:ntw")) != -1) {
		switch (c) {
		case 'l':
			opts.lanes = (unsigned)atoi(optarg);
			break;
		case 'd':
			opts.depth = (uint32_t)atoi(optarg);
			break;
		case 'b':
			opts.block_size = (uint32_t)atoi(optarg) << 10;
			break;
		case 's':
			opts.seconds = atof(optarg);
			break;
		case 'n':
			opts.unchecked = true;
			break;
		case 't':
			opts.threads = true;
			break;
		case 'w':
			opts.touch = true;
			break;
		default:
			fputs(usage, stderr);
			return 1;
		}
	}
	if (opts.lanes < 1 || opts.lanes > LANES_MAX) {
		fputs(usage, stderr);
		return 1;
	}
	return run();
}
