/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Measures lanes alone, memory to memory: how fast blocks move without files. Both ends run on this
 * host's loopback, or each by itself with --source and --sink.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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
#include "lane/hello.h"
#include "lane/tcp/tcp_connect.h"
#include "lane/verbs/verbs_connect.h"

enum { LANES_MAX = 64, CONNECT_MS = 20000 };

static const char usage[] =
	"usage: lane_bench [options]\n"
	"       lane_bench --source|--sink --tcp|--rdma ADDRESS --port PORT [options]\n"
	"  --lanes N --depth N --block-kib N --seconds S   (2, 12, 256, 3)\n"
	"  --blocks N  for each lane to send, instead of --seconds\n"
	"  --settle S  seconds before those, in which nothing is counted   (0)\n"
	"  --no-check  no hashes\n"
	"  --touch     write each block at the source, as one that reads would\n"
	"  --threads   one process, not two\n"
	"  --rdma-op HOW  send, write-imm or write-send, at both ends\n"
	"Lane n uses PORT + n of the sink's ADDRESS.\n";

static struct {
	unsigned lanes;
	uint64_t blocks; /* 0: by time */
	uint32_t depth, block_size;
	double seconds, settle;
	bool unchecked, threads, touch, rdma;
	enum rdma_op op;
	enum lane_side side; /* 0: both */
	union address at;
	unsigned port;
} opts = {
	.lanes = 2,
	.depth = 12,
	.block_size = 256 << 10,
	.seconds = 3,
	.at.in4 = {.sin_family = AF_INET},
};

static const struct lane_key key = {.secret = "lane_bench"};

/* One lane at one end. */
struct end {
	unsigned index;
	enum lane_side side;
	int listener; /* sink, over TCP */
	struct verbs_listener *verbs; /* sink, over RDMA */
	union address at; /* source: to dial */
	struct lane_stats stats;
	uint64_t end_ns; /* source: after the flush */
	uint64_t start_ns; /* source: after the first block was lent, and what is not counted */
	uint64_t start_pos, counted; /* source: bytes until then, and from then on */
	struct failure failure;
	pthread_t thread;
};

static int wait_for(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, CONNECT_MS) > 0 ? 0 : fail_as(OUT_CONNECT, "nobody comes");
}

static int take_tcp(struct end *e, struct lane *l, uint32_t epoch, struct wire **out)
{
	uint8_t hello[LANE_HELLO_SIZE];
	struct hello_terms terms;
	int fd;

	if (wait_for(e->listener))
		return -1;
	fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0 && recv(fd, hello, sizeof hello, MSG_WAITALL) == sizeof hello &&
	    hello_check(l, epoch, false, &key, hello, &terms) == 0)
		return tcp_take(l, epoch, &key, fd, &terms, out);
	close_fd(fd);
	return fail_as(OUT_CONNECT, "the caller says nothing right");
}

static int take_rdma(struct end *e, struct lane *l, uint32_t epoch, struct wire **out)
{
	struct verbs_caller *c = NULL;

	while (!c)
		if (wait_for(verbs_listener_fd(e->verbs)) || verbs_next_caller(e->verbs, &c))
			return -1;
	return verbs_take(l, epoch, &key, c, NULL, clock_ms() + CONNECT_MS, out);
}

static int dial_connect(struct end *e, struct lane *l, uint32_t epoch, struct wire **out)
{
	uint64_t deadline = clock_ms() + CONNECT_MS;

	if (opts.rdma)
		return verbs_dial(l, epoch, &key, NULL, &e->at, NULL, 0, deadline, out);
	return tcp_dial(l, epoch, &key, &e->at, 1, deadline, out);
}

static int connect_lane(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct end *e = ctx;
	struct wire *w;
	int rc;

	if (epoch > 0)
		return fail_as(OUT_PEER_LOST, "%s", why);
	if (e->side == LANE_SOURCE)
		rc = dial_connect(e, l, epoch, &w);
	else
		rc = opts.rdma ? take_rdma(e, l, epoch, &w) : take_tcp(e, l, epoch, &w);
	return rc ? -1 : lane_attach(l, w, 0);
}

static bool is_over(uint64_t pos, uint64_t count_from)
{
	if (opts.blocks)
		return pos >= opts.blocks * opts.block_size;
	return clock_ns() >= count_from + (uint64_t)(opts.seconds * 1e9);
}

static int pump_out(struct end *e, struct lane *l)
{
	uint64_t pos = 0, count_from = 0;
	struct block *b;

	do {
		if (lane_get(l, &b))
			return -1;
		if (pos == 0)
			count_from = clock_ns() + (uint64_t)(opts.settle * 1e9);
		if (e->start_ns == 0 && clock_ns() >= count_from) {
			e->start_ns = clock_ns();
			e->start_pos = pos;
		}
		b->kind = BLOCK_EXTENT;
		b->len = opts.block_size;
		b->pos = pos;
		if (opts.touch)
			memset(b->data, (int)(pos >> 18), b->len);
		pos += b->len;
		if (lane_send(l, b))
			return -1;
	} while (!is_over(pos, count_from));
	if (lane_flush(l))
		return -1;
	e->end_ns = clock_ns();
	e->counted = pos - e->start_pos;
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
		.rdma_op = opts.op,
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
	lane_stats(l, &e->stats);
	/* A sink ends when its source leaves. */
	if (rc && (e->side == LANE_SOURCE || e->stats.epochs == 0))
		e->failure = *failed();
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

static bool any_failed(const struct end *ends)
{
	for (unsigned i = 0; i < opts.lanes; i++)
		if (ends[i].failure.code != OUT_DONE) {
			fprintf(stderr, "lane_bench: %s\n", ends[i].failure.text);
			return true;
		}
	return false;
}

static void report(const struct end *source)
{
	uint64_t bytes = 0, counted = 0, first = UINT64_MAX, last = 0, ns_free = 0;
	double s;

	for (unsigned i = 0; i < opts.lanes; i++) {
		bytes += source[i].stats.bytes;
		counted += source[i].counted;
		ns_free += source[i].stats.ns_free;
		first = source[i].start_ns < first ? source[i].start_ns : first;
		last = source[i].end_ns > last ? source[i].end_ns : last;
	}
	s = (double)(last - first) / 1e9;
	printf("lanes %u depth %u block %u KiB %s: %.4f GB/s, waiting for a free block %.0f%%, "
	       "cpu %.2f s/GB\n",
	       opts.lanes, opts.depth, opts.block_size >> 10, opts.unchecked ? "plain" : "hashed",
	       (double)counted / s / 1e9, (double)ns_free / 1e7 / s / opts.lanes,
	       (cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN)) / ((double)bytes / 1e9));
}

static void set_port(union address *a, unsigned port)
{
	if (a->sa.sa_family == AF_INET6)
		a->in6.sin6_port = htons((uint16_t)port);
	else
		a->in4.sin_port = htons((uint16_t)port);
}

static int listen_for(struct end *e, unsigned *port)
{
	union address at = opts.at;

	e->listener = -1;
	if (opts.rdma)
		return verbs_listen(&at, *port, *port, 0, port, &e->verbs);
	e->listener = tcp_listen(&at, *port, *port, 0, port);
	return e->listener < 0 ? -1 : 0;
}

/* Prepares the ends of lane i that run in this process. */
static int prepare(struct end *source, struct end *sink, unsigned i)
{
	unsigned port = opts.port ? opts.port + i : 0;

	source->index = sink->index = i;
	source->side = LANE_SOURCE;
	sink->side = LANE_SINK;
	if (opts.side != LANE_SOURCE && listen_for(sink, &port)) {
		fprintf(stderr, "lane_bench: %s\n", failed()->text);
		return -1;
	}
	source->at = opts.at;
	set_port(&source->at, port);
	return 0;
}

static int run(void)
{
	static struct end ends[2 * LANES_MAX];
	struct end *source = ends, *sink = ends + opts.lanes;
	pid_t pid = -1;

	for (unsigned i = 0; i < opts.lanes; i++)
		if (prepare(&source[i], &sink[i], i))
			return 1;
	if (opts.side == LANE_SINK) {
		puts("listening");
		fflush(stdout);
		run_ends(sink, opts.lanes);
		return any_failed(sink);
	}
	/* A child must not use the devices that librdmacm has open. */
	if (opts.threads || (opts.rdma && !opts.side))
		run_ends(ends, 2 * opts.lanes);
	else if (!opts.side && (pid = fork()) == 0) {
		run_ends(sink, opts.lanes);
		_exit(0);
	} else
		run_ends(source, opts.lanes);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (any_failed(source))
		return 1;
	report(source);
	return 0;
}

static bool read_op(const char *word)
{
	static const char *const words[] = {"auto", "send", "write-imm", "write-send"};

	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		opts.op = (enum rdma_op)i;
		if (strcmp(word, words[i]) == 0)
			return true;
	}
	return false;
}

static int read_options(int argc, char **argv)
{
	enum {
		LANES,
		DEPTH,
		BLOCK,
		SECONDS,
		PLAIN,
		TOUCH,
		THREADS,
		SOURCE,
		SINK,
		TCP,
		RDMA,
		PORT,
		OP,
		SETTLE,
		BLOCKS
	};
	static const struct option known[] = {
		{"lanes", 1, NULL, LANES},     {"depth", 1, NULL, DEPTH},
		{"block-kib", 1, NULL, BLOCK}, {"seconds", 1, NULL, SECONDS},
		{"no-check", 0, NULL, PLAIN},  {"touch", 0, NULL, TOUCH},
		{"threads", 0, NULL, THREADS}, {"source", 0, NULL, SOURCE},
		{"sink", 0, NULL, SINK},       {"tcp", 1, NULL, TCP},
		{"rdma", 1, NULL, RDMA},       {"port", 1, NULL, PORT},
		{"rdma-op", 1, NULL, OP},      {"settle", 1, NULL, SETTLE},
		{"blocks", 1, NULL, BLOCKS},   {NULL, 0, NULL, 0},
	};
	const char *address = "127.0.0.1";
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case LANES:
			opts.lanes = (unsigned)atoi(optarg);
			break;
		case DEPTH:
			opts.depth = (uint32_t)atoi(optarg);
			break;
		case BLOCK:
			opts.block_size = (uint32_t)atoi(optarg) << 10;
			break;
		case SECONDS:
			opts.seconds = atof(optarg);
			break;
		case PLAIN:
			opts.unchecked = true;
			break;
		case BLOCKS:
			opts.blocks = strtoull(optarg, NULL, 10);
			break;
		case SETTLE:
			opts.settle = atof(optarg);
			break;
		case TOUCH:
			opts.touch = true;
			break;
		case THREADS:
			opts.threads = true;
			break;
		case SOURCE:
			opts.side = LANE_SOURCE;
			break;
		case SINK:
			opts.side = LANE_SINK;
			break;
		case RDMA:
			opts.rdma = true;
			address = optarg;
			break;
		case TCP:
			address = optarg;
			break;
		case PORT:
			opts.port = (unsigned)atoi(optarg);
			break;
		case OP:
			if (!read_op(optarg))
				return -1;
			break;
		default:
			return -1;
		}
	}
	if (strchr(address, ':')) {
		opts.at.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
		return inet_pton(AF_INET6, address, &opts.at.in6.sin6_addr) == 1 ? 0 : -1;
	}
	return inet_pton(AF_INET, address, &opts.at.in4.sin_addr) == 1 ? 0 : -1;
}

int main(int argc, char **argv)
{
	if (read_options(argc, argv) || optind < argc || opts.lanes < 1 || opts.lanes > LANES_MAX ||
	    (opts.side != 0 && opts.port == 0)) {
		fputs(usage, stderr);
		return 1;
	}
	signal(SIGPIPE, SIG_IGN); /* siw raises it: lane.h */
	return run();
}
