/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What each stage of a lane costs on this machine: a line "END STAGE CALL_NS BYTE_NS" for each, in
 * the words of tests/discrete. Processor time of the thread, the least of many runs; of a wake-up,
 * elapsed time.
 *
 * With --rdma ADDRESS, post and completion at the adapter with this address, and nothing else. The
 * two together are what a block costs more over that adapter than over a wire that does nothing, a
 * half each.
 */

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "host/pages.h"
#include "lane/cell_hash.h"
#include "lane/head.h"
#include "lane/pool.h"
#include "lane/verbs/verbs_connect.h"
#include "lane/wire.h"

enum {
	RUNS = 200,
	MIB = 1 << 20,
	PIECE = MIB, /* a large block */
	MANY = 64 * MIB, /* more than a core's own cache */
	PINNED = 16 * MIB,
	WAKES = 200,
	BATCH = 16, /* blocks; a credit comes back for each batch */
	BATCHES = 100,
	DEPTH = 4 * BATCH,
	CONNECT_MS = 10000,
};

static uint8_t *memory; /* of MANY bytes */
static int file; /* of MANY bytes, in memory */

static void check(bool right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "stage_costs: %s: %s\n", what, failed()->text);
	exit(1);
}

static double thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The least time that one of `count' calls takes in a run of them. The calls count on from run to
 * run. */
static double least_ns(void (*call)(unsigned i), unsigned count, unsigned runs)
{
	double least = 1e18;

	for (unsigned run = 0; run < runs; run++) {
		double from = thread_ns(), took;

		for (unsigned i = 0; i < count; i++)
			call(run * count + i);
		took = (thread_ns() - from) / count;
		if (took < least)
			least = took;
	}
	return least;
}

static void print_cost(const char *end, const char *stage, double call_ns, double byte_ns)
{
	printf("%s %s %.1f %.5f\n", end, stage, call_ns > 0 ? call_ns : 0, byte_ns);
	fflush(stdout);
}

/* ---- bytes -------------------------------------------------------------------------------- */

static uint8_t *piece_at(unsigned i)
{
	return memory + (size_t)i * PIECE % MANY;
}

static void hash_nothing(unsigned i)
{
	uint64_t sum[2];

	cell_hash_of(i, memory, 0, sum);
}

static void hash_near(unsigned i)
{
	uint64_t sum[2];

	cell_hash_of(i, memory, PIECE, sum);
}

static void hash_far(unsigned i)
{
	uint64_t sum[2];

	cell_hash_of(i, piece_at(i), PIECE, sum);
}

static void read_byte(unsigned i)
{
	check(pread(file, memory, 1, i % MANY) == 1, "pread");
}

static void read_piece(unsigned i)
{
	check(pread(file, piece_at(i), PIECE, (off_t)i * PIECE % MANY) == PIECE, "pread");
}

static void write_byte(unsigned i)
{
	check(pwrite(file, memory, 1, i % MANY) == 1, "pwrite");
}

static void write_piece(unsigned i)
{
	check(pwrite(file, piece_at(i), PIECE, (off_t)i * PIECE % MANY) == PIECE, "pwrite");
}

static void measure_bytes(void)
{
	double call = least_ns(hash_nothing, 1000, RUNS);

	print_cost("source", "digest", call, least_ns(hash_near, 16, RUNS) / PIECE);
	print_cost("sink", "digest", call, least_ns(hash_far, 4, 8 * RUNS) / PIECE);
	call = least_ns(read_byte, 1000, RUNS);
	print_cost("source", "fill", call, least_ns(read_piece, 4, 8 * RUNS) / PIECE);
	call = least_ns(write_byte, 1000, RUNS);
	print_cost("sink", "store", call, least_ns(write_piece, 4, 8 * RUNS) / PIECE);
}

static void encode_credit(unsigned i)
{
	struct credit c = {1, i};
	uint8_t bytes[CREDIT_SIZE];

	credit_encode(&c, bytes);
	check(credit_decode(bytes, &c) == 0, "credit_decode");
}

/* New memory is faulted in, cleared and locked, as for ibv_reg_mr(3). */
static void lock_pages(unsigned i)
{
	struct pages p;

	(void)i;
	check(pages_map(&p, PINNED) == 0, "pages_map");
	check(mlock(p.base, p.bytes) == 0, "mlock");
	pages_unmap(&p);
}

/* ---- waking ------------------------------------------------------------------------------- */

static int there, back;

static void pass_on(int from, int to)
{
	struct pollfd p = {.fd = from, .events = POLLIN};
	uint64_t n;

	check(poll(&p, 1, -1) == 1 && read(from, &n, sizeof n) == sizeof n, "poll");
	n = 1;
	check(write(to, &n, sizeof n) == sizeof n, "write");
}

static void *answer_wakes(void *arg)
{
	for (unsigned i = 0; i < WAKES * RUNS; i++)
		pass_on(there, back);
	return arg;
}

/* Half of the time for a signal to another thread that sleeps in poll(2), and one back. */
static void measure_wake(void)
{
	uint64_t one = 1, least = UINT64_MAX;
	pthread_t thread;

	there = eventfd(0, EFD_CLOEXEC);
	back = eventfd(0, EFD_CLOEXEC);
	check(pthread_create(&thread, NULL, answer_wakes, NULL) == 0, "pthread_create");
	check(write(there, &one, sizeof one) == sizeof one, "write");
	for (unsigned run = 0; run < RUNS; run++) {
		uint64_t from = clock_ns();

		for (unsigned i = 0; i < WAKES && run * WAKES + i + 1 < WAKES * RUNS; i++)
			pass_on(back, there);
		if (run + 1 < RUNS && clock_ns() - from < least)
			least = clock_ns() - from;
	}
	pthread_join(thread, NULL);
	print_cost("both", "wake", (double)least / WAKES / 2, 0);
}

/* ---- lanes -------------------------------------------------------------------------------- */

/* A wire that does nothing but copy heads. */
struct null_wire {
	struct wire wire;
	struct lane *lane;
};

static struct lane *lanes[LANE_SINK + 1];
static uint64_t null_sent, null_taken, null_stored;
static uint32_t null_slots[DEPTH], null_next; /* of the sink, in the order of posting */
static struct verbs_listener *listener;
static union address at;

static int null_send(struct wire *w, struct block *b)
{
	uint32_t slot = null_slots[null_sent++ % DEPTH];

	(void)w;
	memcpy(lane_pool(lanes[LANE_SINK])->blocks[slot].data - LANE_HEAD, b->data - LANE_HEAD,
	       LANE_HEAD + b->len);
	lane_pool(lanes[LANE_SINK])->blocks[slot].len = b->len;
	return 0;
}

static int null_credit(struct wire *w, uint64_t least, uint64_t *stored)
{
	(void)w;
	*stored = null_stored;
	return null_stored >= least ? 0 : fail_as(OUT_PEER_LOST, "no credit");
}

static int null_post(struct wire *w, struct block *b)
{
	(void)w;
	null_slots[null_next++ % DEPTH] = b->slot;
	return 0;
}

static int null_recv(struct wire *w, bool wait, struct block **b)
{
	(void)w;
	*b = NULL;
	if (null_taken == null_sent)
		return wait ? fail_as(OUT_PEER_LOST, "no block") : 0;
	*b = &lane_pool(lanes[LANE_SINK])->blocks[null_slots[null_taken++ % DEPTH]];
	return 0;
}

static int null_grant(struct wire *w, uint64_t stored)
{
	(void)w;
	null_stored = stored;
	return 0;
}

static void null_break(struct wire *w)
{
	(void)w;
}

static const struct wire_ops null_ops = {
	.send = null_send,
	.credit = null_credit,
	.post = null_post,
	.recv = null_recv,
	.grant = null_grant,
	.break_ = null_break,
	.close = null_break,
};

static struct wire null_wires[LANE_SINK + 1] = {
	[LANE_SOURCE] = {.ops = &null_ops},
	[LANE_SINK] = {.ops = &null_ops},
};

static int attach_null(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	(void)ctx;
	(void)epoch;
	(void)why;
	return lane_attach(l, &null_wires[lane_side_of(l)], 0);
}

static int attach_verbs(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	static const struct lane_key key = {.secret = "stage_costs"};
	uint64_t deadline = clock_ms() + CONNECT_MS;
	struct verbs_caller *c = NULL;
	struct wire *w;

	(void)ctx;
	if (epoch > 0)
		return fail_as(OUT_PEER_LOST, "%s", why);
	if (lane_side_of(l) == LANE_SOURCE)
		return verbs_dial(l, epoch, &key, NULL, &at, NULL, 0, deadline, &w)
			       ? -1
			       : lane_attach(l, w, 0);
	while (!c) {
		struct pollfd p = {.fd = verbs_listener_fd(listener), .events = POLLIN};

		if (poll(&p, 1, CONNECT_MS) != 1)
			return fail_as(OUT_CONNECT, "nobody comes");
		if (verbs_next_caller(listener, &c))
			return -1;
	}
	return verbs_take(l, epoch, &key, c, NULL, deadline, &w) ? -1 : lane_attach(l, w, 0);
}

static void send_block(void)
{
	struct block *b;

	check(lane_get(lanes[LANE_SOURCE], &b) == 0, "lane_get");
	b->len = LANE_HEAD;
	check(lane_send(lanes[LANE_SOURCE], b) == 0, "lane_send");
}

static void *take_block(void *arg)
{
	struct block *b;

	check(lane_recv(lanes[LANE_SINK], &b) == 0, "lane_recv");
	check(lane_put(lanes[LANE_SINK], b) == 0, "lane_put");
	return arg;
}

static void open_lanes(lane_mend_fn attach)
{
	for (unsigned side = LANE_SOURCE; side <= LANE_SINK; side++) {
		struct lane_setup setup = {
			.side = side,
			.depth = DEPTH,
			.block_size = LANE_BLOCK_MIN,
			.unchecked = true,
			.mend = attach,
		};

		check(lane_open(&setup, &lanes[side]) == 0, "lane_open");
	}
	for (unsigned i = 0; i < DEPTH; i++)
		null_slots[i] = i;
}

/* Nanoseconds a block at each end: the least of all batches. */
static void measure_lanes(lane_mend_fn attach, double ns[static LANE_SINK + 1])
{
	pthread_t thread;

	open_lanes(attach);
	if (attach == attach_verbs) { /* both ends must connect at a time */
		check(pthread_create(&thread, NULL, take_block, NULL) == 0, "pthread_create");
		send_block();
		pthread_join(thread, NULL);
	}
	ns[LANE_SOURCE] = ns[LANE_SINK] = 1e18;
	for (unsigned i = 0; i < BATCHES * BATCH; i++) {
		double from = thread_ns(), between, end;

		for (unsigned n = 0; n < BATCH; n++)
			send_block();
		between = thread_ns();
		for (unsigned n = 0; n < BATCH; n++)
			take_block(NULL);
		end = thread_ns();
		if (between - from < ns[LANE_SOURCE] * BATCH)
			ns[LANE_SOURCE] = (between - from) / BATCH;
		if (end - between < ns[LANE_SINK] * BATCH)
			ns[LANE_SINK] = (end - between) / BATCH;
	}
	lane_close(lanes[LANE_SOURCE]);
	lane_close(lanes[LANE_SINK]);
}

static void measure_blocks(const char *address)
{
	static const char *const ends[] = {[LANE_SOURCE] = "source", [LANE_SINK] = "sink"};
	double lane[LANE_SINK + 1], verbs[LANE_SINK + 1];
	unsigned port;

	measure_lanes(attach_null, lane);
	if (!address) {
		for (unsigned side = LANE_SOURCE; side <= LANE_SINK; side++)
			print_cost(ends[side], "lane", lane[side], 0);
		return;
	}
	at.in4 = (struct sockaddr_in){.sin_family = AF_INET};
	check(inet_pton(AF_INET, address, &at.in4.sin_addr) == 1, "inet_pton");
	check(verbs_listen(&at, 0, 0, 0, &port, &listener) == 0, "verbs_listen");
	at.in4.sin_port = htons((uint16_t)port);
	measure_lanes(attach_verbs, verbs);
	for (unsigned side = LANE_SOURCE; side <= LANE_SINK; side++) {
		print_cost(ends[side], "post", (verbs[side] - lane[side]) / 2, 0);
		print_cost(ends[side], "completion", (verbs[side] - lane[side]) / 2, 0);
	}
	verbs_unlisten(listener);
}

static void measure_host(void)
{
	memory = mmap(NULL, MANY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	file = memfd_create("stage_costs", MFD_CLOEXEC);
	check(memory != MAP_FAILED && file >= 0, "memory");
	memset(memory, 1, MANY);
	check(pwrite(file, memory, MANY, 0) == MANY, "pwrite");
	measure_bytes();
	print_cost("both", "credit", least_ns(encode_credit, 1000, RUNS) / 2, 0);
	print_cost("both", "register", 0, least_ns(lock_pages, 1, RUNS) / PINNED);
	measure_wake();
}

int main(int argc, char **argv)
{
	if (argc != 1 && (argc != 3 || strcmp(argv[1], "--rdma") != 0)) {
		fputs("usage: stage_costs [--rdma ADDRESS]\n", stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (argc == 1)
		measure_host();
	measure_blocks(argc == 3 ? argv[2] : NULL);
	return 0;
}
