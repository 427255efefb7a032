/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The least that moves messages over RDMA, to compare lanes with: as ib_send_bw(1), one queue pair
 * and a ring of registered buffers at either end, and SENDs back to back. Nothing is filled, read,
 * hashed or sent again, and an error ends the program.
 *
 * ib_send_bw relies on receives that the adapter finds not ready being repeated. Simulated adapters
 * do not allow that, nor does iWARP. So the sink sends an empty message for each quarter of the
 * ring that it has posted again, and the source sends no more than the ring has room for. The
 * source's last message is empty.
 */

#include <arpa/inet.h>
#include <getopt.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/clock.h"

enum { CONNECT_MS = 10000, REAP_MOST = 16, SENDS_SPARE = 2, RETRIES = 7 };

static const char usage[] =
	"usage: send_loop --source|--sink --rdma ADDRESS --port PORT [options]\n"
	"  --depth N --block-kib N --seconds S   (12, 256, 3)\n"
	"  --blocks N  to send, instead of --seconds\n"
	"  --settle S  seconds before those, in which nothing is counted   (0)\n"
	"  --poll      poll for completions without sleeping\n";

static struct {
	uint64_t blocks; /* 0: by time */
	uint32_t depth, size;
	double seconds, settle;
	bool source, sink, polls;
	struct sockaddr_in at;
} opts = {
	.depth = 12,
	.size = 256 << 10,
	.seconds = 3,
	.at.sin_family = AF_INET,
};

static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t *ring;

static uint32_t batch; /* messages that one credit stands for */
static uint64_t sent, completed, credited; /* messages; credited: source */
static uint64_t received; /* sink: messages */
static bool ended; /* sink: the last message has come */

static void check(bool right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "send_loop: %s: %m\n", what);
	exit(1);
}

/* ---- connecting --------------------------------------------------------------------------- */

/* Returns the id of the event. */
static struct rdma_cm_id *expect_event(enum rdma_cm_event_type what)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *of;

	check(rdma_get_cm_event(events, &e) == 0, "rdma_get_cm_event");
	if (e->event != what) {
		fprintf(stderr, "send_loop: %s\n", rdma_event_str(e->event));
		exit(1);
	}
	of = e->id;
	rdma_ack_cm_event(e);
	return of;
}

static void post_receive(uint64_t slot)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(ring + slot * opts.size),
			      .length = opts.size,
			      .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = opts.sink}, *bad;

	check(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

/* Makes the queues of id, registers the ring, and posts a receive for each message that may come.
 */
static void equip(void)
{
	uint32_t receives = opts.sink ? opts.depth : opts.depth / batch + 1;
	uint32_t sends = (opts.sink ? opts.depth / batch : opts.depth) + SENDS_SPARE;
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = sends,
			.max_recv_wr = receives,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	size_t bytes = (size_t)opts.depth * opts.size;
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);

	channel = ibv_create_comp_channel(id->verbs);
	check(pd && channel, "make queues");
	cq = ibv_create_cq(id->verbs, (int)(sends + receives), NULL, channel, 0);
	check(cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = cq;
	check(rdma_create_qp(id, pd, &init) == 0, "rdma_create_qp");
	ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(ring != MAP_FAILED, "mmap");
	mr = ibv_reg_mr(pd, ring, bytes, IBV_ACCESS_LOCAL_WRITE);
	check(mr != NULL, "ibv_reg_mr");
	for (uint32_t i = 0; i < receives; i++)
		post_receive(opts.sink ? i : 0);
}

static void connect_source(void)
{
	struct rdma_conn_param how = {.retry_count = RETRIES, .rnr_retry_count = RETRIES};

	check(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&opts.at, CONNECT_MS) == 0,
	      "rdma_resolve_addr");
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	check(rdma_resolve_route(id, CONNECT_MS) == 0, "rdma_resolve_route");
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	equip();
	check(rdma_connect(id, &how) == 0, "rdma_connect");
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
}

static void accept_source(void)
{
	struct rdma_conn_param how = {.rnr_retry_count = RETRIES};
	struct rdma_cm_id *listener;

	check(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&opts.at) == 0 &&
		      rdma_listen(listener, 1) == 0,
	      "listen");
	puts("listening");
	fflush(stdout);
	id = expect_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	equip();
	check(rdma_accept(id, &how) == 0, "rdma_accept");
	expect_event(RDMA_CM_EVENT_ESTABLISHED);
}

/* ---- moving ------------------------------------------------------------------------------- */

static void post_send(uint64_t slot, uint32_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(ring + slot * opts.size),
			      .length = bytes,
			      .lkey = mr->lkey};
	struct ibv_send_wr wr = {.wr_id = slot,
				 .sg_list = &sge,
				 .num_sge = bytes > 0,
				 .opcode = IBV_WR_SEND},
			   *bad;

	check(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void process_completion(const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "send_loop: %s\n", ibv_wc_status_str(wc->status));
		exit(1);
	}
	if (wc->opcode != IBV_WC_RECV) {
		completed++;
		return;
	}
	ended = opts.sink && wc->byte_len == 0;
	post_receive(wc->wr_id);
	if (opts.source) {
		credited += batch;
	} else if (!ended && ++received % batch == 0) {
		post_send(0, 0);
	}
}

static int reap_completions(void)
{
	struct ibv_wc wc[REAP_MOST];
	int n = ibv_poll_cq(cq, REAP_MOST, wc);

	check(n >= 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++)
		process_completion(&wc[i]);
	return n;
}

/* Processes completions, and waits for one if there are none. */
static void await_completions(void)
{
	struct ibv_cq *of;
	void *context;

	if (reap_completions() > 0 || opts.polls)
		return;
	check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
	if (reap_completions() > 0)
		return;
	check(ibv_get_cq_event(channel, &of, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(of, 1);
}

static void run_source(void)
{
	uint64_t from = clock_ns() + (uint64_t)(opts.settle * 1e9), from_sent = 0, until;
	uint64_t to = from + (uint64_t)(opts.seconds * 1e9), now;
	bool counts = false;
	double s;

	while ((now = clock_ns()) < to || opts.blocks) {
		if (opts.blocks && sent == opts.blocks)
			break;
		if (!counts && now >= from) {
			counts = true;
			from = now;
			from_sent = sent;
		}
		reap_completions();
		while (sent - completed >= opts.depth || sent - credited >= opts.depth)
			await_completions();
		post_send(sent++ % opts.depth, opts.size);
	}
	while (completed < sent || sent - credited >= batch)
		await_completions();
	until = clock_ns();
	s = (double)(until - from) / 1e9;
	printf("loop depth %u block %u KiB: %.4f GB/s\n", opts.depth, opts.size >> 10,
	       (double)(sent - from_sent) * opts.size / s / 1e9);
	post_send(0, 0);
	while (completed <= sent)
		await_completions();
}

static void run_sink(void)
{
	while (!ended)
		await_completions();
}

/* ---- options ------------------------------------------------------------------------------ */

static int read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"source", 0, NULL, 's'},  {"sink", 0, NULL, 'k'},   {"rdma", 1, NULL, 'a'},
		{"port", 1, NULL, 'p'},    {"depth", 1, NULL, 'd'},  {"block-kib", 1, NULL, 'b'},
		{"seconds", 1, NULL, 't'}, {"settle", 1, NULL, 'e'}, {"poll", 0, NULL, 'l'},
		{"blocks", 1, NULL, 'n'},  {NULL, 0, NULL, 0},
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
		case 'l':
			opts.polls = true;
			break;
		default:
			return -1;
		}
	}
	return opts.source != opts.sink && opts.at.sin_port && opts.depth && opts.size ? 0 : -1;
}

int main(int argc, char **argv)
{
	if (read_options(argc, argv) || optind < argc) {
		fputs(usage, stderr);
		return 2;
	}
	batch = opts.depth >= 4 ? opts.depth / 4 : 1;
	events = rdma_create_event_channel();
	check(events != NULL, "rdma_create_event_channel");
	if (opts.sink) {
		accept_source();
		run_sink();
	} else {
		connect_source();
		run_source();
	}
	return 0;
}
