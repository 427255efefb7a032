/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The least that moves messages over RDMA, to compare lanes with: as ib_send_bw(1) and
 * ib_write_bw(1), queue pairs with registered memory, and messages back to back, all of them from
 * one buffer (or, with --ring, each from the next of as many as are in flight). Nothing is filled,
 * read, hashed or sent again, and an error ends the program. Each queue pair has a thread, as a
 * lane has, and the sink a ring of buffers.
 *
 * ib_send_bw relies on receives that the adapter finds not ready being repeated. Simulated adapters
 * do not allow that, nor does iWARP. So the sink sends an empty message for each quarter of the
 * ring that it has posted again, and the source sends no more than the ring has room for. WRITEs
 * alone need no receives, and nobody at the sink learns of them. The source's last message is empty.
 */

#include <arpa/inet.h>
#include <getopt.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/clock.h"

enum { LOOPS_MAX = 64, CONNECT_MS = 10000, REAP_MOST = 16, SENDS_SPARE = 2, RETRIES = 7 };

enum { NOTICE = 16 }; /* bytes of the message that follows a WRITE */

static const char usage[] =
	"usage: send_loop --source|--sink --rdma ADDRESS --port PORT [options]\n"
	"  --pairs N --depth N --block-kib N --seconds S   (1, 12, 256, 3)\n"
	"  --op HOW    send, write-imm, write-send (a message after each WRITE), or write, at both ends\n"
	"  --blocks N  for each queue pair to send, instead of --seconds\n"
	"  --settle S  seconds before those, in which nothing is counted   (0)\n"
	"  --poll      poll for completions without sleeping\n"
	"  --ring      send from a ring of buffers\n"
	"Queue pair n uses PORT + n of the sink's ADDRESS.\n";

enum operation { SEND, WRITE_IMM, WRITE_SEND, WRITE };

static struct {
	uint64_t blocks; /* 0: by time */
	uint32_t pairs, depth, size;
	enum operation op;
	double seconds, settle;
	bool source, sink, polls, ring;
	struct sockaddr_in at;
} opts = {
	.pairs = 1,
	.depth = 12,
	.size = 256 << 10,
	.seconds = 3,
	.at.sin_family = AF_INET,
};

static uint32_t batch; /* messages that one credit stands for */

/* Where a source may write; the private data of the answer to its request. */
struct target {
	uint64_t at;
	uint32_t key, unused;
};

/* One queue pair at one end. */
struct loop {
	pthread_t thread;
	struct sockaddr_in at;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id, *listener;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *ring; /* then a notice for each slot */
	struct target target;
	uint64_t sent, completed, credited; /* messages; credited: source */
	uint64_t received; /* sink: messages */
	bool ended; /* sink: the last message has come */
	uint64_t start_ns, start_sent, end_ns; /* source: of what is counted */
};

static void check(bool right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "send_loop: %s: %m\n", what);
	exit(1);
}

/* ---- connecting --------------------------------------------------------------------------- */

/* Returns the id of the event. */
static struct rdma_cm_id *expect_event(struct loop *l, enum rdma_cm_event_type what)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *of;

	check(rdma_get_cm_event(l->events, &e) == 0, "rdma_get_cm_event");
	if (e->event != what) {
		fprintf(stderr, "send_loop: %s\n", rdma_event_str(e->event));
		exit(1);
	}
	of = e->id;
	if (opts.source && e->param.conn.private_data_len >= sizeof l->target)
		memcpy(&l->target, e->param.conn.private_data, sizeof l->target);
	rdma_ack_cm_event(e);
	return of;
}

static uint8_t *notice_at(const struct loop *l, uint64_t slot)
{
	return l->ring + (size_t)opts.depth * opts.size + slot * NOTICE;
}

static void post_receive(struct loop *l, uint64_t slot)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(l->ring + slot * opts.size),
			      .length = opts.size,
			      .lkey = l->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = opts.sink}, *bad;

	if (opts.op == WRITE_SEND) {
		sge.addr = (uintptr_t)notice_at(l, slot);
		sge.length = NOTICE;
	}
	check(ibv_post_recv(l->id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void register_ring(struct loop *l, struct ibv_pd *pd)
{
	size_t bytes = (size_t)opts.depth * (opts.size + NOTICE);
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (opts.sink && opts.op != SEND)
		access |= IBV_ACCESS_REMOTE_WRITE;
	l->ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(l->ring != MAP_FAILED, "mmap");
	l->mr = ibv_reg_mr(pd, l->ring, bytes, access);
	check(l->mr != NULL, "ibv_reg_mr");
	if (opts.sink)
		l->target = (struct target){.at = (uintptr_t)l->ring, .key = l->mr->rkey};
}

/* Makes the queues of the id, registers the ring, and posts a receive for each message that may
 * come. */
static void equip(struct loop *l)
{
	uint32_t receives = opts.sink ? opts.depth : opts.depth / batch + 1;
	uint32_t sends = (opts.sink ? opts.depth / batch : opts.depth) + SENDS_SPARE;
	struct ibv_qp_init_attr init = {
		.cap = {.max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_pd *pd = ibv_alloc_pd(l->id->verbs);

	if (opts.op == WRITE_SEND)
		sends *= 2;
	init.cap.max_send_wr = sends;
	l->channel = ibv_create_comp_channel(l->id->verbs);
	check(pd && l->channel, "make queues");
	l->cq = ibv_create_cq(l->id->verbs, (int)(sends + receives), NULL, l->channel, 0);
	check(l->cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = l->cq;
	check(rdma_create_qp(l->id, pd, &init) == 0, "rdma_create_qp");
	register_ring(l, pd);
	for (uint32_t i = 0; i < receives; i++)
		post_receive(l, opts.sink ? i : 0);
}

static void connect_source(struct loop *l)
{
	struct rdma_conn_param how = {.retry_count = RETRIES, .rnr_retry_count = RETRIES};

	check(rdma_create_id(l->events, &l->id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&l->at, CONNECT_MS) == 0,
	      "rdma_resolve_addr");
	expect_event(l, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_resolve_route(l->id, CONNECT_MS) == 0, "rdma_resolve_route");
	expect_event(l, RDMA_CM_EVENT_ROUTE_RESOLVED);
	equip(l);
	check(rdma_connect(l->id, &how) == 0, "rdma_connect");
	expect_event(l, RDMA_CM_EVENT_ESTABLISHED);
}

static void listen_for_source(struct loop *l)
{
	check(rdma_create_id(l->events, &l->listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_bind_addr(l->listener, (struct sockaddr *)&l->at) == 0 &&
		      rdma_listen(l->listener, 1) == 0,
	      "listen");
}

static void accept_source(struct loop *l)
{
	struct rdma_conn_param how = {.rnr_retry_count = RETRIES,
				      .private_data = &l->target,
				      .private_data_len = sizeof l->target};

	l->id = expect_event(l, RDMA_CM_EVENT_CONNECT_REQUEST);
	equip(l);
	check(rdma_accept(l->id, &how) == 0, "rdma_accept");
	expect_event(l, RDMA_CM_EVENT_ESTABLISHED);
}

/* ---- moving ------------------------------------------------------------------------------- */

static void post_sends(struct loop *l, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad;

	check(ibv_post_send(l->id->qp, first, &bad) == 0, "ibv_post_send");
}

static void post_empty(struct loop *l)
{
	post_sends(l, &(struct ibv_send_wr){.opcode = IBV_WR_SEND});
}

static void post_block(struct loop *l, uint64_t slot)
{
	struct ibv_sge data = {.addr = (uintptr_t)(l->ring + (opts.ring ? slot : 0) * opts.size),
			       .length = opts.size,
			       .lkey = l->mr->lkey};
	struct ibv_sge text = {.addr = (uintptr_t)notice_at(l, slot),
			       .length = NOTICE,
			       .lkey = l->mr->lkey};
	struct ibv_send_wr notice = {.sg_list = &text, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr wr = {.sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND};

	if (opts.op != SEND) {
		wr.wr.rdma.remote_addr = l->target.at + slot * opts.size;
		wr.wr.rdma.rkey = l->target.key;
		wr.opcode = opts.op == WRITE_IMM ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	}
	if (opts.op == WRITE_SEND)
		wr.next = &notice;
	post_sends(l, &wr);
	l->sent++;
}

static void process_receive(struct loop *l, const struct ibv_wc *wc)
{
	l->ended = opts.sink && wc->opcode == IBV_WC_RECV && wc->byte_len == 0;
	post_receive(l, wc->wr_id);
	if (opts.source)
		l->credited += batch;
	else if (!l->ended && ++l->received % batch == 0)
		post_empty(l);
}

static void process_completion(struct loop *l, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "send_loop: %s\n", ibv_wc_status_str(wc->status));
		exit(1);
	}
	if (wc->opcode & IBV_WC_RECV)
		process_receive(l, wc);
	else
		/* The message after a WRITE counts for both. */
		l->completed += opts.op != WRITE_SEND || wc->opcode == IBV_WC_SEND;
}

static int reap_completions(struct loop *l)
{
	struct ibv_wc wc[REAP_MOST];
	int n = ibv_poll_cq(l->cq, REAP_MOST, wc);

	check(n >= 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++)
		process_completion(l, &wc[i]);
	return n;
}

/* Processes completions, and waits for one if there are none. */
static void await_completions(struct loop *l)
{
	struct ibv_cq *of;
	void *context;

	if (reap_completions(l) > 0 || opts.polls)
		return;
	check(ibv_req_notify_cq(l->cq, 0) == 0, "ibv_req_notify_cq");
	if (reap_completions(l) > 0)
		return;
	check(ibv_get_cq_event(l->channel, &of, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(of, 1);
}

/* Whether at least so many messages are in flight, or in the sink's ring. */
static bool are_sent(const struct loop *l, uint64_t in_flight, uint64_t in_ring)
{
	return l->sent - l->completed >= in_flight ||
	       (opts.op != WRITE && l->sent - l->credited >= in_ring);
}

static void send_blocks(struct loop *l)
{
	uint64_t from = clock_ns() + (uint64_t)(opts.settle * 1e9);
	uint64_t to = from + (uint64_t)(opts.seconds * 1e9), now;

	while ((now = clock_ns()) < to || opts.blocks) {
		if (opts.blocks && l->sent == opts.blocks)
			break;
		if (!l->start_ns && now >= from) {
			l->start_ns = now;
			l->start_sent = l->sent;
		}
		reap_completions(l);
		while (are_sent(l, opts.depth, opts.depth))
			await_completions(l);
		post_block(l, l->sent % opts.depth);
	}
	while (are_sent(l, 1, batch))
		await_completions(l);
	l->end_ns = clock_ns();
}

static void *run_source(void *arg)
{
	struct loop *l = arg;

	connect_source(l);
	send_blocks(l);
	post_empty(l);
	while (l->completed <= l->sent)
		await_completions(l);
	return NULL;
}

static void *run_sink(void *arg)
{
	struct loop *l = arg;

	accept_source(l);
	while (!l->ended)
		await_completions(l);
	return NULL;
}

static void report(const struct loop *loops)
{
	uint64_t first = UINT64_MAX, last = 0, counted = 0;

	for (uint32_t i = 0; i < opts.pairs; i++) {
		counted += loops[i].sent - loops[i].start_sent;
		first = loops[i].start_ns < first ? loops[i].start_ns : first;
		last = loops[i].end_ns > last ? loops[i].end_ns : last;
	}
	printf("loops %u depth %u block %u KiB: %.4f GB/s\n", opts.pairs, opts.depth,
	       opts.size >> 10, (double)counted * opts.size / (double)(last - first));
}

static void run_loops(void)
{
	static struct loop loops[LOOPS_MAX];

	for (uint32_t i = 0; i < opts.pairs; i++) {
		struct loop *l = &loops[i];

		l->at = opts.at;
		l->at.sin_port = htons((uint16_t)(ntohs(opts.at.sin_port) + i));
		l->events = rdma_create_event_channel();
		check(l->events != NULL, "rdma_create_event_channel");
		if (opts.sink)
			listen_for_source(l);
	}
	if (opts.sink)
		puts("listening");
	fflush(stdout);
	for (uint32_t i = 0; i < opts.pairs; i++)
		check(pthread_create(&loops[i].thread, NULL, opts.sink ? run_sink : run_source,
				     &loops[i]) == 0,
		      "start a thread");
	for (uint32_t i = 0; i < opts.pairs; i++)
		pthread_join(loops[i].thread, NULL);
	if (opts.source)
		report(loops);
}

/* ---- options ------------------------------------------------------------------------------ */

static int read_operation(const char *word)
{
	static const char *const words[] = {"send", "write-imm", "write-send", "write"};

	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		opts.op = (enum operation)i;
		if (strcmp(word, words[i]) == 0)
			return 0;
	}
	return -1;
}

static int read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"source", 0, NULL, 's'},  {"sink", 0, NULL, 'k'},   {"rdma", 1, NULL, 'a'},
		{"port", 1, NULL, 'p'},    {"depth", 1, NULL, 'd'},  {"block-kib", 1, NULL, 'b'},
		{"seconds", 1, NULL, 't'}, {"settle", 1, NULL, 'e'}, {"poll", 0, NULL, 'l'},
		{"blocks", 1, NULL, 'n'},  {"pairs", 1, NULL, 'q'},  {"op", 1, NULL, 'o'},
		{"ring", 0, NULL, 'r'},    {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's':
			opts.source = true;
			break;
		case 'k':
			opts.sink = true;
			break;
		case 'a':
			if (inet_pton(AF_INET, optarg, &opts.at.sin_addr) != 1)
				return -1;
			break;
		case 'p':
			opts.at.sin_port = htons((uint16_t)atoi(optarg));
			break;
		case 'q':
			opts.pairs = (uint32_t)atoi(optarg);
			break;
		case 'd':
			opts.depth = (uint32_t)atoi(optarg);
			break;
		case 'b':
			opts.size = (uint32_t)atoi(optarg) << 10;
			break;
		case 't':
			opts.seconds = atof(optarg);
			break;
		case 'e':
			opts.settle = atof(optarg);
			break;
		case 'n':
			opts.blocks = strtoull(optarg, NULL, 10);
			break;
		case 'o':
			if (read_operation(optarg))
				return -1;
			break;
		case 'l':
			opts.polls = true;
			break;
		case 'r':
			opts.ring = true;
			break;
		default:
			return -1;
		}
	}
	return opts.source != opts.sink && opts.at.sin_port && opts.depth && opts.size &&
			       opts.pairs && opts.pairs <= LOOPS_MAX
		       ? 0
		       : -1;
}

int main(int argc, char **argv)
{
	if (read_options(argc, argv) || optind < argc) {
		fputs(usage, stderr);
		return 2;
	}
	batch = opts.depth >= 4 ? opts.depth / 4 : 1;
	run_loops();
	return 0;
}
