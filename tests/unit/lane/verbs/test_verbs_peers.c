/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes over verbs to another process, which dies, or which belongs to an ordinary user with little
 * locked memory; on the adapter that SLUICE_TRANSPORT names.
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
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include "base/clock.h"
#include "base/io.h"
#include "lane/verbs/verbs_impl.h"
#include "verbs_door.h"

enum { NOBODY = 65534, LIMIT_MS = 60000, SKIPPED = 77 };

static const struct lane_key key = {.secret = "of the session", .nonces = {"a", "b"}};

/* ---- another process ------------------------------------------------------------------ */

/* A lane whose other end is in another process: one wire, and a failure when that breaks. */
struct half {
	struct door *door;
	struct lane *lane;
	bool listens;
	uint64_t blocks;
	uint8_t retries; /* retries of packets that the peer's host does not acknowledge */
	uint64_t broke_ms;
	char broke_why[FAIL_TEXT_MAX];
	int result;
	struct failure why;
	pthread_t thread;
};

static uint8_t retries_of(const struct wire *w)
{
	const struct verbs *v = (const struct verbs *)w;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {.retry_cnt = UINT8_MAX};

	if (ibv_query_qp(v->id->qp, &attr, IBV_QP_RETRY_CNT, &init))
		return UINT8_MAX;
	return attr.retry_cnt;
}

static int half_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct half *h = ctx;
	uint64_t deadline = clock_ms() + LIMIT_MS;
	struct wire *w;
	int rc;

	if (epoch > 0) {
		h->broke_ms = clock_ms();
		snprintf(h->broke_why, sizeof h->broke_why, "%s", why);
		return fail_as(OUT_PEER_LOST, "not mended");
	}
	rc = h->listens ? door_take(h->door, l, epoch, &key, deadline, &w)
			: door_dial(h->door, l, epoch, &key, deadline, &w);
	if (rc)
		return -1;
	h->retries = retries_of(w);
	return lane_attach(l, w, 0);
}

static int half_work(struct half *h)
{
	bool source = lane_side_of(h->lane) == LANE_SOURCE;
	struct block *b;

	for (uint64_t i = 0; i < h->blocks; i++) {
		if (source ? lane_get(h->lane, &b) : lane_recv(h->lane, &b))
			return -1;
		if (source)
			b->len = lane_block_size(h->lane);
		if (source ? lane_send(h->lane, b) : lane_put(h->lane, b))
			return -1;
	}
	/* As idle as it can be while alive. */
	return source ? lane_flush(h->lane) : 0;
}

static void *half_thread(void *arg)
{
	struct half *h = arg;

	host_enter(h->listens ? &far : &near);
	h->result = half_work(h);
	h->why = *failed();
	return NULL;
}

static bool half_open(struct half *h, enum lane_side side)
{
	h->lane = door_lane(side, 8, 64 << 10, half_mend, h);
	return h->lane != NULL;
}

/*
 * This program again, as `peer SIDE PORT BLOCKS': the other end, which dials, moves BLOCKS blocks
 * and then stops. It is a new program, because a process that has used verbs must not fork.
 */
static int peer(char **argv)
{
	struct door d = {.address = far.address, .port = (unsigned)atoi(argv[1])};
	struct half h = {.door = &d, .blocks = strtoull(argv[2], NULL, 10)};

	if (!half_open(&h, (enum lane_side)atoi(argv[0])))
		return 1;
	half_thread(&h);
	if (h.result) {
		fprintf(stderr, "peer: %s\n", h.why.text);
		return (int)h.why.code;
	}
	if (write(1, "done", 4) != 4)
		return 1;
	for (;;)
		pause();
}

static pid_t start_self(char *argv[], int out)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (out >= 0)
			dup2(out, 1);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	return pid;
}

static pid_t start_peer(enum lane_side side, unsigned port, uint64_t blocks, int *out)
{
	char texts[3][24];
	char *argv[] = {
		(char *)"test_verbs_peers", (char *)"peer", texts[0], texts[1], texts[2], NULL};
	int fds[2];
	pid_t pid;

	snprintf(texts[0], sizeof texts[0], "%d", side);
	snprintf(texts[1], sizeof texts[1], "%u", port);
	snprintf(texts[2], sizeof texts[2], "%llu", (unsigned long long)blocks);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = start_self(argv, fds[1]);
	close(fds[1]);
	*out = fds[0];
	return pid;
}

static uint64_t cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* An idle session uses less than 10 ms of processor time in 10 s; here seconds are measured. A busy
 * host charges an emulated processor for what it does not do, but not in each of them. */
static void assert_no_cpu(void)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 20 && least >= 10 * slow; i++) {
		uint64_t before = cpu_ms(), used;

		sleep_ms(1000);
		used = cpu_ms() - before;
		least = used < least ? used : least;
	}
	assert_true(least < 10 * slow);
}

/*
 * When the peer is killed, this end's call returns within the promised time. Idle: the peer has
 * moved its blocks and stopped; else it is in the middle of them.
 */
static void killed_peer(enum lane_side mine, uint64_t blocks, bool idle)
{
	struct door d;
	struct half h = {.door = &d, .listens = true, .blocks = UINT64_MAX};
	uint64_t killed, end = clock_ms() + LIMIT_MS;
	char word[4];
	pid_t pid;
	int out;

	assert_int_equal(door_open(&d, NULL), 0);
	assert_true(half_open(&h, mine));
	pid = start_peer(mine == LANE_SOURCE ? LANE_SINK : LANE_SOURCE, d.port, blocks, &out);
	assert_int_equal(pthread_create(&h.thread, NULL, half_thread, &h), 0);
	if (idle) {
		assert_int_equal(read_full(out, word, sizeof word), sizeof word);
		sleep_ms(100);
		assert_no_cpu();
	}
	while (lane_stored(h.lane) < 5) {
		assert_true(clock_ms() < end);
		sleep_ms(1);
	}
	killed = clock_ms();
	kill(pid, SIGKILL);
	pthread_join(h.thread, NULL);
	waitpid(pid, NULL, 0);
	close(out);
	assert_int_equal(h.result, -1);
	assert_int_equal(h.why.code, OUT_PEER_LOST);
	print_message("noticed after %d ms: %s\n", (int)(h.broke_ms - killed), h.broke_why);
	assert_true(h.broke_ms - killed < 2000 * slow);
	/* 7 means infinite on rxe: the loss of a host would never be detected. */
	assert_in_range(h.retries, 0, strncmp(door_adapter, "rxe", 3) == 0 ? 6 : 7);
	lane_close(h.lane);
	door_close(&d);
}

static void test_idle_sink_detects_a_killed_peer(void **state)
{
	(void)state;
	killed_peer(LANE_SINK, 10, true);
}

/* It has sent everything that it may, and waits for credits. */
static void test_idle_source_detects_a_killed_peer(void **state)
{
	(void)state;
	killed_peer(LANE_SOURCE, 10, true);
}

static void test_busy_sink_detects_a_killed_peer(void **state)
{
	(void)state;
	killed_peer(LANE_SINK, UINT64_MAX, false);
}

static void test_busy_source_detects_a_killed_peer(void **state)
{
	(void)state;
	killed_peer(LANE_SOURCE, UINT64_MAX, false);
}

/* ---- locked memory -------------------------------------------------------------------- */

/*
 * This program as `locked KIB LANES PORT': an ordinary user with that limit makes LANES lanes of 12
 * x 256 KiB; the exit status is the failure's code.
 */
static int locked(char **argv)
{
	rlim_t limit = (rlim_t)atoi(argv[0]) << 10;
	struct rlimit rl = {limit, limit};
	struct door d = {.address = far.address, .port = (unsigned)atoi(argv[2])};
	struct wire *w;

	host_enter(&near);
	if (setrlimit(RLIMIT_MEMLOCK, &rl) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return 125;
	for (uint32_t i = 0; i < (uint32_t)atoi(argv[1]); i++) {
		struct lane *l = door_lane(LANE_SOURCE, 12, 256 << 10, door_never, NULL);

		if (!l)
			return 124;
		/* All lanes stay open: they must fit together. */
		if (door_dial(&d, l, i, &key, clock_ms() + LIMIT_MS, &w)) {
			fprintf(stderr, "%s\n", failed()->text);
			return (int)failed()->code;
		}
	}
	return 0;
}

static int run_locked(unsigned kib, unsigned lanes, unsigned port)
{
	char texts[3][24];
	char *argv[] = {
		(char *)"test_verbs_peers", (char *)"locked", texts[0], texts[1], texts[2], NULL};
	int status;

	snprintf(texts[0], sizeof texts[0], "%u", kib);
	snprintf(texts[1], sizeof texts[1], "%u", lanes);
	snprintf(texts[2], sizeof texts[2], "%u", port);
	assert_true(waitpid(start_self(argv, -1), &status, 0) > 0);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Accepts wires of epochs 0 to most - 1 of one lane, and keeps them. */
struct taker {
	struct door door;
	struct lane *lane;
	unsigned came, most;
	pthread_t thread;
};

static void *taker_thread(void *arg)
{
	struct taker *t = arg;
	struct wire *wires[4];

	host_enter(&far);
	while (t->came < t->most &&
	       !door_take(&t->door, t->lane, t->came, &key, clock_ms() + LIMIT_MS, &wires[t->came]))
		t->came++;
	for (unsigned i = 0; i < t->came; i++)
		wires[i]->ops->close(wires[i]);
	return NULL;
}

static void lock_lanes(unsigned kib, unsigned lanes, unsigned fit, int code)
{
	struct taker t = {.most = fit};
	int got;

	assert_int_equal(door_open(&t.door, NULL), 0);
	t.lane = door_lane(LANE_SINK, 12, 256 << 10, door_never, NULL);
	assert_non_null(t.lane);
	assert_int_equal(pthread_create(&t.thread, NULL, taker_thread, &t), 0);
	got = run_locked(kib, lanes, t.door.port);
	pthread_join(t.thread, NULL);
	assert_int_equal(got, code);
	assert_int_equal(t.came, fit);
	lane_close(t.lane);
	door_close(&t.door);
}

static void test_locked_memory_limit_of_an_ordinary_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	lock_lanes(64, 1, 0, OUT_MEMLOCK);
	lock_lanes(8192, 2, 2, OUT_DONE);
	lock_lanes(8192, 3, 2, OUT_MEMLOCK);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle_sink_detects_a_killed_peer),
		cmocka_unit_test(test_idle_source_detects_a_killed_peer),
		cmocka_unit_test(test_busy_sink_detects_a_killed_peer),
		cmocka_unit_test(test_busy_source_detects_a_killed_peer),
		cmocka_unit_test(test_locked_memory_limit_of_an_ordinary_user),
	};

	signal(SIGPIPE, SIG_IGN); /* siw increments it: see lane.h */
	if (!hosts_find()) {
		fputs("no RDMA adapter is named in SLUICE_TRANSPORT\n", stderr);
		return SKIPPED;
	}
	if (argc == 5 && strcmp(argv[1], "peer") == 0)
		_exit(peer(argv + 2));
	if (argc == 5 && strcmp(argv[1], "locked") == 0)
		_exit(locked(argv + 2));
	return cmocka_run_group_tests_name("verbs peers", tests, NULL, NULL);
}
