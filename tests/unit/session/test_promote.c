/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes that return from TCP to RDMA, and the memory that is registered for that. No adapter is
 * needed: the stand-in for RDMA is TCP to the same port.
 */

#include "session_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "lane/tcp/tcp_connect.h"
#include "session/connect/porter.h"
#include "session/session_impl.h"
#include <cmocka.h>

/* Each block of the source takes a millisecond. */
enum { BLOCKS = 1500, SOME_BLOCKS = 20, A_WHILE_MS = 500, CONNECT_MS = 4000, LONG_MS = 20000 };

static struct pair p;
static _Atomic bool rdma_works; /* from the first knock on */
static _Atomic unsigned dials[PAIR_LANES], connected[PAIR_LANES];
static _Atomic unsigned given; /* connections with memory that was prepared */
/* Memory of the source's lanes: prepared, of which as many blocks moved meanwhile; freed unused. */
static _Atomic unsigned prepared, moved, dropped;
static _Atomic bool prepare_fails; /* the source's */
static _Atomic unsigned sink_prepares;
static _Atomic bool sink_waits; /* with its memory */
static _Atomic bool holds; /* the sink stores no block that came over RDMA */
static _Atomic unsigned held;

/* ---- stand-ins for verbs (--wrap) ----------------------------------------------------------- */

int __wrap_verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		      const union address *from, const union address *to, struct verbs **memory,
		      uint64_t began_ms, uint64_t deadline_ms, struct wire **out);
int __wrap_verbs_knock(struct lane *l, const struct lane_key *key, const union address *from,
		       const union address *to, uint64_t deadline_ms);
int __wrap_verbs_prepare(struct lane *l, const union address *at, struct verbs **out);
void __wrap_verbs_unprepare(struct verbs *v);
bool __wrap_verbs_present(char *why, size_t size);
bool __wrap_verbs_behind(const union address *addr);
int __wrap_porter_listen_rdma(struct porter *porter, const union address *addr, unsigned lo,
			      unsigned hi, unsigned *port);

int __wrap_verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		      const union address *from, const union address *to, struct verbs **memory,
		      uint64_t began_ms, uint64_t deadline_ms, struct wire **out)
{
	unsigned k = lane_index(l);

	(void)from, (void)began_ms;
	atomic_fetch_add(&dials[k], 1);
	if (*memory)
		atomic_fetch_add(&given, 1);
	*memory = NULL;
	if (!atomic_load(&rdma_works))
		return fail_as(OUT_CONNECT, "no answer");
	if (tcp_dial(l, epoch, key, to, 1, deadline_ms, out) < 0)
		return -1;
	atomic_fetch_add(&connected[k], 1);
	return 0;
}

int __wrap_verbs_knock(struct lane *l, const struct lane_key *key, const union address *from,
		       const union address *to, uint64_t deadline_ms)
{
	(void)l, (void)key, (void)from, (void)to, (void)deadline_ms;
	atomic_store(&rdma_works, true);
	return 0;
}

int __wrap_verbs_prepare(struct lane *l, const union address *at, struct verbs **out)
{
	static max_align_t memory;
	_Atomic uint64_t *done;

	(void)at;
	if (lane_side_of(l) == LANE_SINK) {
		atomic_fetch_add(&sink_prepares, 1);
		while (atomic_load(&sink_waits) && !lane_aborted(l))
			pause_ms(2);
		return fail_as(OUT_TRANSPORT, "no memory there");
	}
	if (atomic_load(&prepare_fails))
		return fail_as(OUT_MEMLOCK, "no memory here");
	done = &p.ends[SOURCE].jobs[lane_index(l)].done;
	if (await_count(done, atomic_load(done) + SOME_BLOCKS))
		atomic_fetch_add(&moved, SOME_BLOCKS);
	atomic_fetch_add(&prepared, 1);
	*out = (struct verbs *)&memory;
	return 0;
}

void __wrap_verbs_unprepare(struct verbs *v)
{
	if (v)
		atomic_fetch_add(&dropped, 1);
}

bool __wrap_verbs_present(char *why, size_t size)
{
	(void)why, (void)size;
	return true;
}

bool __wrap_verbs_behind(const union address *addr)
{
	(void)addr;
	return true;
}

int __wrap_porter_listen_rdma(struct porter *porter, const union address *addr, unsigned lo,
			      unsigned hi, unsigned *port)
{
	(void)addr, (void)lo, (void)hi;
	*port = porter_tcp_port(porter);
	return 0;
}

/* ---- two sessions ------------------------------------------------------------------------------
 */

static void work(struct lane_job *j, struct block *b, uint64_t number)
{
	(void)b, (void)number;
	if (j->end == SOURCE) {
		pause_ms(1);
		return;
	}
	if (!atomic_load(&connected[j->index]) || !atomic_load(&holds))
		return;
	atomic_fetch_add(&held, 1);
	while (atomic_load(&holds) && !lane_aborted(j->lane))
		pause_ms(2);
}

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	p.work = work;
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.want = TRANSPORT_AUTO;
		p.ends[i].o.lanes = 1;
		p.ends[i].o.connect_timeout_ms = CONNECT_MS;
	}
	/* One address, so one adapter: the sink prepares its memory. */
	snprintf(p.ends[SINK].o.address, sizeof p.ends[SINK].o.address, "127.0.0.1");
	for (unsigned k = 0; k < PAIR_LANES; k++) {
		atomic_store(&dials[k], 0);
		atomic_store(&connected[k], 0);
	}
	atomic_store(&rdma_works, false);
	atomic_store(&given, 0);
	atomic_store(&prepared, 0);
	atomic_store(&moved, 0);
	atomic_store(&dropped, 0);
	atomic_store(&prepare_fails, false);
	atomic_store(&sink_prepares, 0);
	atomic_store(&sink_waits, false);
	atomic_store(&holds, false);
	atomic_store(&held, 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	atomic_store(&holds, false);
	atomic_store(&sink_waits, false);
	session_pair_close(&p);
	return 0;
}

static void open_pair(unsigned lanes)
{
	p.ends[SOURCE].o.lanes = p.ends[SINK].o.lanes = (uint16_t)lanes;
	if (session_pair_open(&p) < 0)
		print_error("%s / %s\n", p.ends[0].why.text, p.ends[1].why.text);
	assert_non_null(p.ends[SOURCE].s);
	assert_non_null(p.ends[SINK].s);
}

static void finish_pair(void)
{
	if (pair_finish(&p) == 0)
		return;
	print_error("%s\n", p.ends[SOURCE].jobs[0].why.text);
	fail();
}

static bool await_number(_Atomic unsigned *number, unsigned least)
{
	uint64_t deadline = clock_ms() + LONG_MS;

	while (atomic_load(number) < least && clock_left(deadline) > 0)
		pause_ms(2);
	return atomic_load(number) >= least;
}

static unsigned sum(const _Atomic unsigned number[PAIR_LANES])
{
	unsigned n = 0;

	for (unsigned k = 0; k < PAIR_LANES; k++)
		n += atomic_load(&number[k]);
	return n;
}

/* ---- promotion --------------------------------------------------------------------------------
 */

/* Blocks move over TCP while the memory is registered, and the new wire gets that memory. */
static void test_a_lane_uses_tcp_until_its_memory_is_ready(void **state)
{
	(void)state;
	open_pair(2);
	pair_start(&p, BLOCKS);
	finish_pair();
	for (unsigned k = 0; k < 2; k++) {
		assert_int_equal(atomic_load(&connected[k]), 1);
		assert_int_equal(atomic_load(&p.ends[SOURCE].s->ends[k].transport), TRANSPORT_RDMA);
	}
	assert_int_equal(atomic_load(&prepared), 2);
	assert_int_equal(atomic_load(&moved), 2 * SOME_BLOCKS);
	assert_int_equal(atomic_load(&given), 2);
	assert_int_equal(atomic_load(&dropped), 0);
}

static void test_a_lane_without_memory_keeps_its_tcp_wire(void **state)
{
	unsigned first;

	(void)state;
	atomic_store(&prepare_fails, true);
	open_pair(2);
	pair_start(&p, BLOCKS);
	finish_pair();
	/* Those before the first data. */
	first = atomic_load(&dials[0]);
	assert_true(first > 0);
	assert_int_equal(sum(dials), first);
	assert_int_equal(pair_seen(&p, SOURCE, MSG_LANE_DOWN), first);
}

static void test_other_lanes_follow_once_a_block_was_stored(void **state)
{
	(void)state;
	atomic_store(&holds, true);
	open_pair(PAIR_LANES);
	pair_start(&p, BLOCKS);
	assert_true(await_number(&held, 1));
	pause_ms(A_WHILE_MS);
	assert_int_equal(sum(connected), 1);
	atomic_store(&holds, false);
	finish_pair();
	for (unsigned k = 0; k < PAIR_LANES; k++)
		assert_int_equal(atomic_load(&connected[k]), 1);
}

static void test_no_lane_follows_one_that_stored_no_block(void **state)
{
	struct lane_end *first;
	uint64_t deadline;
	unsigned promoted = 0, others;

	(void)state;
	atomic_store(&holds, true);
	open_pair(PAIR_LANES);
	pair_start(&p, BLOCKS);
	assert_true(await_number(&held, 1));
	assert_int_equal(sum(connected), 1);
	/* It need not be lane 0, whose connection may be the youngest. */
	while (!atomic_load(&connected[promoted]))
		promoted++;
	first = &p.ends[SOURCE].s->ends[promoted];
	/* Lane 0 has dialled before the first data. */
	others = sum(dials) - atomic_load(&dials[promoted]);
	atomic_store(&rdma_works, false);
	lane_break_wire(first->lane, "broken to order");
	/* Or the sink's thread could not end the epoch. */
	atomic_store(&holds, false);
	deadline = clock_ms() + LONG_MS;
	while (atomic_load(&first->transport) != TRANSPORT_TCP && clock_left(deadline) > 0)
		pause_ms(2);
	assert_int_equal(atomic_load(&first->transport), TRANSPORT_TCP);
	pause_ms(A_WHILE_MS);
	assert_int_equal(sum(dials) - atomic_load(&dials[promoted]), others);
	finish_pair();
}

/* The lane has returned to RDMA, and leaves it. Returns how long it waits with its next return. */
static uint64_t leave_rdma(struct lane_end *e)
{
	uint64_t now, after;

	pthread_mutex_lock(&e->s->lock);
	e->promoted_ms = now = clock_ms();
	pthread_mutex_unlock(&e->s->lock);
	promote_later(e, 1000);
	pthread_mutex_lock(&e->s->lock);
	after = e->promote_after_ms;
	pthread_mutex_unlock(&e->s->lock);
	return after - now;
}

static void test_each_relapse_doubles_the_pause(void **state)
{
	static const uint64_t pause_s[] = {5, 10, 20, 40, 80, 160, 300, 300};
	struct lane_end *e;

	(void)state;
	open_pair(1);
	e = &p.ends[SOURCE].s->ends[0];
	for (unsigned i = 0; i < sizeof pause_s / sizeof *pause_s; i++)
		assert_in_range(leave_rdma(e), pause_s[i] * 1000, pause_s[i] * 1000 + 900);
}

/* ---- the listening end ------------------------------------------------------------------------
 */

static void test_the_offer_waits_for_memory(void **state)
{
	(void)state;
	p.ends[SINK].o.connect_timeout_ms = LONG_MS;
	atomic_store(&sink_waits, true);
	open_pair(2);
	pair_start(&p, SOME_BLOCKS);
	assert_true(await_number(&sink_prepares, 2));
	pause_ms(A_WHILE_MS);
	assert_int_equal(pair_seen(&p, SINK, MSG_OFFER), 0);
	atomic_store(&sink_waits, false);
	finish_pair();
	assert_int_equal(pair_seen(&p, SINK, MSG_OFFER), 1);
}

/* It comes in time for TCP. */
static void test_the_offer_does_not_wait_for_long(void **state)
{
	uint64_t begun;

	(void)state;
	atomic_store(&sink_waits, true);
	begun = clock_ms();
	open_pair(2);
	pair_start(&p, SOME_BLOCKS);
	assert_true(pair_await(&p, SINK, MSG_OFFER, 1));
	assert_in_range(clock_ms() - begun, CONNECT_MS / 4, CONNECT_MS);
	atomic_store(&sink_waits, false);
	finish_pair();
}

static void test_an_aborted_lane_registers_nothing(void **state)
{
	struct lane_end *e;

	(void)state;
	open_pair(1);
	e = &p.ends[SINK].s->ends[0];
	lane_abort(e->lane);
	offer_prepare_memory(e);
	assert_int_equal(atomic_load(&sink_prepares), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_a_lane_uses_tcp_until_its_memory_is_ready),
		T(test_a_lane_without_memory_keeps_its_tcp_wire),
		T(test_other_lanes_follow_once_a_block_was_stored),
		T(test_no_lane_follows_one_that_stored_no_block),
		T(test_each_relapse_doubles_the_pause),
		T(test_the_offer_waits_for_memory),
		T(test_the_offer_does_not_wait_for_long),
		T(test_an_aborted_lane_registers_nothing),
#undef T
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("promote", tests, NULL, NULL);
}
