/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes over verbs, on the adapter that SLUICE_TRANSPORT names (rxe, siw, sim, device): in the lab,
 * simulated, or on a host with an adapter. Without one there is nothing to test.
 */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/clock.h"
#include "base/worker.h"
#include "lane/pool.h"
#include "lane/tcp/tcp_connect.h"
#include "lane/verbs/verbs_connect.h"
#include "lane_conformance.h"
#include "verbs_door.h"

enum { LIMIT_MS = 60000, SKIPPED = 77 };

static const struct lane_key key = {.secret = "of the session", .nonces = {"a", "b"}};

/* ---- pairs of lanes ------------------------------------------------------------------- */

static int setup6(void **state)
{
	struct door *d = calloc(1, sizeof *d);

	*state = d;
	return d ? door_open(d, far.address6) : -1;
}

static int join_sink_listens(void *state, struct lane *l, uint32_t epoch, const struct lane_key *k,
			     uint64_t deadline_ms, struct wire **out)
{
	return door_join_as(LANE_SINK, state, l, epoch, k, deadline_ms, out);
}

static int join_source_listens(void *state, struct lane *l, uint32_t epoch,
			       const struct lane_key *k, uint64_t deadline_ms, struct wire **out)
{
	return door_join_as(LANE_SOURCE, state, l, epoch, k, deadline_ms, out);
}

static struct backend sink_listens = {"verbs, the source dials",
				      RDMA_OP_SEND,
				      door_pair_open,
				      door_pair_close,
				      join_sink_listens,
				      0,
				      0,
				      0};
static struct backend source_listens = {"verbs, the sink dials",
					RDMA_OP_SEND,
					door_pair_open,
					door_pair_close,
					join_source_listens,
					0,
					0,
					0};
static struct backend by_turns = {"verbs, both dial by turns",
				  RDMA_OP_SEND,
				  door_pair_open,
				  door_pair_close,
				  door_join_by_turns,
				  0,
				  0,
				  0};
static struct backend over_ipv6 = {
	"verbs over IPv6", RDMA_OP_SEND, setup6, door_pair_close, join_sink_listens, 0, 0, 0};

static void transfer(const struct backend *b, unsigned blocks, uint32_t depth, uint32_t block_size)
{
	struct pair p;
	void *state;
	struct job source = {.pair = &p, .blocks = blocks}, sink = {.pair = &p};
	bool ended;

	assert_int_equal(b->setup(&state), 0);
	assert_int_equal(pair_open(&p, b, state, 1, depth, block_size, NULL), 0);
	job_start(&sink, sink_job);
	job_start(&source, source_job);
	ended = job_join(&source, LIMIT_MS);
	pair_end(&p);
	if (!ended || !job_join(&sink, LIMIT_MS))
		abort();
	if (source.rc)
		print_error("source: %s\n", source.failure.text);
	assert_int_equal(source.rc, 0);
	assert_string_equal(sink.wrong, "");
	assert_int_equal(sink.done, blocks);
	pair_close(&p);
	b->teardown(state);
}

/* How much memory each of two ends may lock. Only root can raise the limit, and siw counts root's
 * memory, too. */
static size_t raise_memlock(void)
{
	const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit has;

	if (setrlimit(RLIMIT_MEMLOCK, &all) == 0)
		return SIZE_MAX;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &has), 0);
	/* An eighth is for small messages and queues. */
	return has.rlim_cur == RLIM_INFINITY ? SIZE_MAX : has.rlim_cur / 16 * 7;
}

/* Queue sizes at both ends of their range, as far as memory may be locked. */
static void test_extreme_sizes_work(void **state)
{
	uint32_t block = LANE_BLOCK_MAX, depth = LANE_DEPTH_MAX;
	struct rlimit before;
	size_t may_lock;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	may_lock = raise_memlock();
	while (pool_bytes(3, block) > may_lock)
		block /= 2;
	while (pool_bytes(depth, LANE_BLOCK_MIN) > may_lock)
		depth /= 2;
	transfer(&sink_listens, 20, 1, LANE_BLOCK_MIN);
	transfer(&sink_listens, 6, 3, block);
	transfer(&sink_listens, 2500, depth, LANE_BLOCK_MIN);
	transfer(&source_listens, 2500, depth, LANE_BLOCK_MIN);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

static void test_ipv6_works(void **state)
{
	(void)state;
	if (!far.address6)
		skip();
	transfer(&over_ipv6, 30, 4, 64 << 10);
}

/*
 * Both ends close in one thread, one after the other, while connected: neither waits for the other.
 */
static void test_close_does_not_wait_for_the_peer(void **state)
{
	struct job source, sink;
	uint64_t begun;
	struct pair p;
	void *door;

	(void)state;
	source = (struct job){.pair = &p, .blocks = 10};
	sink = (struct job){.pair = &p};
	assert_int_equal(sink_listens.setup(&door), 0);
	assert_int_equal(pair_open(&p, &sink_listens, door, 0, 4, 4096, NULL), 0);
	job_start(&sink, sink_job);
	job_start(&source, source_job);
	assert_true(job_join(&source, LIMIT_MS));
	pair_end(&p);
	assert_true(job_join(&sink, LIMIT_MS));
	begun = clock_ms();
	pair_close(&p);
	assert_true(clock_ms() - begun < 2000 * slow);
	sink_listens.teardown(door);
}

/* ---- refused callers ----------------------------------------------------------------- */

/* A connection request from near to the listener. */
struct call {
	struct door *door;
	struct lane *lane;
	const struct lane_key *key;
	uint64_t deadline_ms;
	int result;
	struct failure why;
	pthread_t thread;
};

static void *call_thread(void *arg)
{
	struct call *c = arg;
	struct wire *w;

	host_enter(&near);
	c->result = door_dial(c->door, c->lane, 0, c->key, c->deadline_ms, &w);
	c->why = *failed();
	if (!c->result)
		w->ops->close(w);
	return NULL;
}

/* The accepting side at far, which waits for the right caller. */
struct wait {
	struct door *door;
	struct lane *lane;
	bool came;
	pthread_t thread;
};

static void *wait_thread(void *arg)
{
	struct wait *w = arg;
	struct wire *wire;

	host_enter(&far);
	w->came = !door_take(w->door, w->lane, 0, &key, clock_ms() + LIMIT_MS, &wire);
	if (w->came)
		wire->ops->close(wire);
	return NULL;
}

struct scene {
	struct door door;
	struct call call;
	struct wait wait;
};

static void scene_open(struct scene *s, uint32_t depth, uint32_t block_size)
{
	*s = (struct scene){.call = {.key = &key}};
	assert_int_equal(door_open(&s->door, NULL), 0);
	s->call.door = s->wait.door = &s->door;
	s->call.lane = door_lane(LANE_SOURCE, depth, block_size, door_never, NULL);
	s->wait.lane = door_lane(LANE_SINK, depth, block_size, door_never, NULL);
	s->call.deadline_ms = clock_ms() + LIMIT_MS;
	assert_non_null(s->call.lane);
	assert_non_null(s->wait.lane);
}

static void scene_close(struct scene *s)
{
	lane_close(s->call.lane);
	lane_close(s->wait.lane);
	if (s->door.listener)
		door_close(&s->door);
}

static void call_start(struct call *c)
{
	assert_int_equal(pthread_create(&c->thread, NULL, call_thread, c), 0);
}

static void wait_start(struct wait *w)
{
	assert_int_equal(pthread_create(&w->thread, NULL, wait_thread, w), 0);
}

/* The accepting side still waits for the right caller. */
static void assert_open(struct scene *s)
{
	s->call.key = &key;
	call_start(&s->call);
	pthread_join(s->call.thread, NULL);
	pthread_join(s->wait.thread, NULL);
	assert_int_equal(s->call.result, 0);
	assert_true(s->wait.came);
}

static void test_wrong_token_is_refused(void **state)
{
	static const struct lane_key wrong = {.secret = "of another session"};
	struct scene s;

	(void)state;
	scene_open(&s, 4, 4096);
	wait_start(&s.wait);
	s.call.key = &wrong;
	call_start(&s.call);
	pthread_join(s.call.thread, NULL);
	assert_int_equal(s.call.result, -1);
	assert_int_equal(s.call.why.code, OUT_CONNECT);
	/* An iWARP adapter may see the end of the connection before the refusal. */
	print_message("%s\n", s.call.why.text);
	assert_true(strstr(s.call.why.text, "refused by the peer") ||
		    (door_iwarp && strstr(s.call.why.text, "no answer")));
	assert_non_null(strstr(s.call.why.text, far.address));
	assert_open(&s);
	scene_close(&s);
}

static void test_missing_listener_is_reported(void **state)
{
	char where[100];
	struct scene s;

	(void)state;
	scene_open(&s, 4, 4096);
	verbs_unlisten(s.door.listener);
	s.door.listener = NULL;
	call_start(&s.call);
	pthread_join(s.call.thread, NULL);
	assert_int_equal(s.call.result, -1);
	assert_int_equal(s.call.why.code, OUT_CONNECT);
	snprintf(where, sizeof where, "connect to %s:%u: no RDMA listener", far.address,
		 s.door.port);
	if (!strstr(s.call.why.text, where))
		print_error("%s\n", s.call.why.text);
	assert_non_null(strstr(s.call.why.text, where));
	scene_close(&s);
}

/* A knock at the listener, or at a port where nobody listens. */
static void *knock_thread(void *arg)
{
	struct call *c = arg;
	union address a = host_address(far.address, c->door->port);

	host_enter(&near);
	c->result = verbs_knock(c->lane, c->key, NULL, &a, c->deadline_ms);
	return NULL;
}

static void test_only_a_listener_answers_a_knock(void **state)
{
	struct scene s;

	(void)state;
	/* cxgb4 reports both alike. */
	if (strncmp(door_adapter, "t6", 2) == 0 || strcmp(door_adapter, "device") == 0)
		skip();
	scene_open(&s, 4, 4096);
	wait_start(&s.wait);
	s.call.key = &(const struct lane_key){.secret = "of another session"};
	assert_int_equal(pthread_create(&s.call.thread, NULL, knock_thread, &s.call), 0);
	pthread_join(s.call.thread, NULL);
	assert_int_equal(s.call.result, 0);
	assert_open(&s);
	verbs_unlisten(s.door.listener);
	s.door.listener = NULL;
	host_call(&near, knock_thread, &s.call);
	assert_int_equal(s.call.result, -1);
	scene_close(&s);
}

/*
 * The listener exists, but nothing accepts the request. Locked memory does not suffice for two
 * requests at a time.
 */
static void test_unanswered_request_times_out(void **state)
{
	struct rlimit before, once;
	struct scene s;
	uint64_t begun;

	(void)state;
	scene_open(&s, 4, 256 << 10);
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	once = before;
	once.rlim_cur = pool_bytes(4, 256 << 10) * 3 / 2;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &once), 0);
	begun = clock_ms();
	s.call.deadline_ms = begun + 700;
	call_start(&s.call);
	pthread_join(s.call.thread, NULL);
	assert_int_equal(s.call.result, -1);
	assert_int_equal(s.call.why.code, OUT_CONNECT);
	assert_true(clock_ms() - begun < 700 + 2000 * slow);
	s.call.deadline_ms = clock_ms() + LIMIT_MS;
	call_start(&s.call);
	sleep_ms(300);
	begun = clock_ms();
	lane_abort(s.call.lane);
	pthread_join(s.call.thread, NULL);
	setrlimit(RLIMIT_MEMLOCK, &before);
	assert_int_equal(s.call.result, -1);
	assert_int_equal(s.call.why.code, OUT_CONNECT);
	assert_true(clock_ms() - begun < 2000 * slow);
	scene_close(&s);
}

/*
 * A host that accepts every packet and answers none, as behind a firewall: a neighbour that does
 * not exist. Runs in a worker, as lanes do, because siw connects within one call, which only a
 * signal ends.
 */
static void *silent_call(void *arg)
{
	struct call *c = arg;
	union address a = host_address(near.silent, 7);
	struct wire *w;

	host_enter(&near);
	c->result = verbs_dial(c->lane, 0, c->key, NULL, &a, NULL, 0, c->deadline_ms, &w);
	c->why = *failed();
	return NULL;
}

static void test_silent_host_times_out(void **state)
{
	struct worker w = {.running = false};
	char command[200], where[100];
	struct scene s;
	uint64_t begun;

	(void)state;
	if (!near.silent)
		skip();
	snprintf(command, sizeof command,
		 "ip %s neigh replace %s lladdr 02:77:00:00:00:99 dev %s nud permanent",
		 near.device ? near.ip_option : "", near.silent, near.device);
	if (near.device)
		assert_int_equal(system(command), 0);
	scene_open(&s, 4, 4096);
	begun = clock_ms();
	s.call.deadline_ms = begun + 1500;
	assert_int_equal(worker_start(&w, "dial", silent_call, &s.call), 0);
	worker_join(&w);
	print_message("given up after %d ms: %s\n", (int)(clock_ms() - begun), s.call.why.text);
	assert_int_equal(s.call.result, -1);
	assert_int_equal(s.call.why.code, OUT_CONNECT);
	snprintf(where, sizeof where, "connect to %s:7: no answer; does a firewall", near.silent);
	assert_non_null(strstr(s.call.why.text, where));
	assert_true(clock_ms() - begun < 1500 + 2000 * slow);
	s.call.deadline_ms = clock_ms() + LIMIT_MS;
	assert_int_equal(worker_start(&w, "dial", silent_call, &s.call), 0);
	sleep_ms(500);
	begun = clock_ms();
	lane_abort(s.call.lane);
	worker_join(&w);
	assert_true(clock_ms() - begun < 2000 * slow);
	scene_close(&s);
}

/* A stranger: a connection request with arbitrary private data. */
struct stranger {
	unsigned port;
	const void *bytes;
	uint8_t len;
	enum rdma_cm_event_type answer;
};

static int next(struct rdma_event_channel *ch, enum rdma_cm_event_type *what)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(ch, &e))
		return -1;
	*what = e->event;
	return rdma_ack_cm_event(e);
}

static void *stranger_there(void *arg)
{
	struct stranger *g = arg;
	union address a = host_address(far.address, g->port);
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.private_data = g->bytes, .private_data_len = g->len};
	enum rdma_cm_event_type what = RDMA_CM_EVENT_ADDR_RESOLVED;
	struct rdma_cm_id *id = NULL;

	if (ch && !rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) &&
	    !rdma_resolve_addr(id, NULL, &a.sa, 5000) && !next(ch, &what) &&
	    !rdma_resolve_route(id, 5000) && !next(ch, &what) && !rdma_create_qp(id, NULL, &init) &&
	    !rdma_connect(id, &param))
		next(ch, &what);
	g->answer = what;
	if (id && id->qp)
		rdma_destroy_qp(id);
	if (id)
		rdma_destroy_id(id);
	if (ch)
		rdma_destroy_event_channel(ch);
	return NULL;
}

static void test_garbage_requests_are_refused(void **state)
{
	struct lane_private p = {.depth = 4, .block_size = 4096};
	uint8_t sample[56] = {0};
	struct scene s;

	(void)state;
	lane_private_encode(&p, sample);
	struct stranger strangers[] = {
		{.bytes = NULL, .len = 0},
		{.bytes = "hello", .len = 5},
		{.bytes = sample, .len = LANE_PRIVATE_SIZE / 2},
		{.bytes = sample + 1, .len = LANE_PRIVATE_SIZE},
		/* Well-formed, but with a wrong token. */
		{.bytes = sample, .len = sizeof sample},
	};
	scene_open(&s, 4, 4096);
	wait_start(&s.wait);
	for (unsigned i = 0; i < sizeof strangers / sizeof *strangers; i++) {
		strangers[i].port = s.door.port;
		host_call(&near, stranger_there, &strangers[i]);
		assert_int_equal(strangers[i].answer, RDMA_CM_EVENT_REJECTED);
	}
	assert_open(&s);
	scene_close(&s);
}

/* ---- listeners and devices ------------------------------------------------------------ */

static void *listen_checks(void *arg)
{
	union address a = host_address(far.address, 0), lo = host_address("127.0.0.1", 0), taken;
	struct verbs_listener *v = NULL, *second = NULL;
	const char *bad = NULL;
	unsigned port = 0, other, tcp;
	char why[200];
	int fd;

	(void)arg;
	fd = tcp_listen(&a, 0, 0, 0, &tcp);
	if (fd < 0)
		return (void *)"no TCP listener";
	if (!verbs_present(why, sizeof why) || why[0])
		bad = "no RDMA present";
	else if (!verbs_behind(&a))
		bad = "no RDMA behind the address";
	else if (verbs_behind(&lo))
		bad = "RDMA behind 127.0.0.1";
	/* The first free port of a range, also where RDMA and TCP share ports (siw). */
	else if (verbs_listen(&a, tcp, tcp + 20, 0, &port, &v) || port < tcp || port > tcp + 20)
		bad = "no listener in a range";
	else if (verbs_listen(&a, port, port, 0, &other, &second) == 0)
		bad = "two listeners on one port";
	else if (failed()->code != OUT_SOCKET)
		bad = "the wrong failure for a port that is taken";
	taken = host_address(far.address, port);
	if (!bad && verbs_listen(&taken, 0, 0, 0, &other, &second) == 0)
		bad = "two listeners on one address";
	if (!bad &&
	    (verbs_listen(&lo, 0, 0, 0, &other, &second) == 0 || failed()->code != OUT_TRANSPORT))
		bad = "a listener on 127.0.0.1, or the wrong failure";
	verbs_unlisten(second);
	verbs_unlisten(v);
	close(fd);
	return (void *)bad;
}

static void test_listener_finds_a_free_port_in_its_range(void **state)
{
	const char *bad = host_call(&far, listen_checks, NULL);

	(void)state;
	if (bad)
		print_error("%s\n", bad);
	assert_null(bad);
}

static unsigned long long not_ready_before;

/* Runs last, because it reads counters of all tests before. */
static void test_no_receiver_not_ready_was_counted(void **state)
{
	(void)state;
	assert_int_equal(door_not_ready(), not_ready_before);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_listener_finds_a_free_port_in_its_range),
		cmocka_unit_test(test_extreme_sizes_work),
		cmocka_unit_test(test_ipv6_works),
		cmocka_unit_test(test_close_does_not_wait_for_the_peer),
		cmocka_unit_test(test_wrong_token_is_refused),
		cmocka_unit_test(test_missing_listener_is_reported),
		cmocka_unit_test(test_only_a_listener_answers_a_knock),
		cmocka_unit_test(test_unanswered_request_times_out),
		cmocka_unit_test(test_silent_host_times_out),
		cmocka_unit_test(test_garbage_requests_are_refused),
		cmocka_unit_test(test_no_receiver_not_ready_was_counted),
	};
	int failures;

	signal(SIGPIPE, SIG_IGN); /* siw increments it: see lane.h */
	if (!hosts_find()) {
		fputs("no RDMA adapter is named in SLUICE_TRANSPORT\n", stderr);
		return SKIPPED;
	}
	sink_listens.op = source_listens.op = by_turns.op = over_ipv6.op = door_op;
	not_ready_before = door_not_ready();
	if (getenv("SLUICE_COUNT") && atoi(getenv("SLUICE_COUNT")) > 1) {
		failures = conformance_run(&sink_listens);
		failures += conformance_run(&source_listens);
	} else {
		/* Most of the time goes into making connections. */
		failures = conformance_run(&by_turns);
	}
	return failures + cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
