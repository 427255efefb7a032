/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes whose RDMA connections break too often while TCP cannot be reached. No adapter is needed:
 * the stand-in for RDMA is TCP to the same port.
 */

#include "session_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "session/connect/porter.h"
#include "session/session_impl.h"
#include <cmocka.h>

enum { LANES = 4, TIMEOUT_MS = 2000, BLOCKS = 200, CLOSE_AT = 70 };
/* For the test that demands RDMA: rounds that fail at once, and the least time of later ones. */
enum { DEMAND_AT = 10, ROUNDS = 10, ROUNDS_TIMEOUT_MS = 20000, LATER_MS = 6000 };

static struct pair p;
/*
 * MUTE: each lane connects once; after that one attempt is refused and all others are unanswered.
 */
static enum tcp { TCP_OPEN, TCP_REFUSED, TCP_SILENT, TCP_MUTE } tcp;
static _Atomic bool closes; /* TCP is refused from now on */
static _Atomic unsigned rdma_dials, tcp_dials, later_dials;
static _Atomic unsigned refusals; /* how many more RDMA attempts fail at once */
static _Atomic bool hurried; /* a later attempt had less than LATER_MS */
/* RDMA attempts are refused, with this reason of the other end; NULL: they are not */
static const char *_Atomic peer_reason;

/* ---- stand-ins for verbs, and wrappers of TCP (--wrap) ------------------------------------ */

int __real_tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		    const union address *to, unsigned n, uint64_t deadline_ms, struct wire **out);
int __wrap_tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		    const union address *to, unsigned n, uint64_t deadline_ms, struct wire **out);
int __wrap_verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		      const union address *from, const union address *to, struct verbs **prepared,
		      uint64_t began_ms, uint64_t deadline_ms, struct wire **out);
bool __wrap_verbs_present(char *why, size_t size);
bool __wrap_verbs_behind(const union address *addr);
int __wrap_porter_listen_rdma(struct porter *porter, const union address *addr, unsigned lo,
			      unsigned hi, unsigned *port);

int __wrap_tcp_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		    const union address *to, unsigned n, uint64_t deadline_ms, struct wire **out)
{
	bool first = tcp == TCP_MUTE && epoch == 0;

	atomic_fetch_add(&tcp_dials, 1);
	if ((tcp == TCP_OPEN && !atomic_load(&closes)) || first)
		return __real_tcp_dial(l, epoch, key, to, n, deadline_ms, out);
	if (tcp == TCP_MUTE && atomic_fetch_add(&later_dials, 1) == 0)
		return fail_as(OUT_CONNECT, "no memory there");
	while (tcp >= TCP_SILENT && clock_left(deadline_ms) > 0 && !lane_aborted(l))
		pause_ms(2);
	return fail_as(OUT_CONNECT, "no way over TCP");
}

/* The source dials. */
static int refuse_with_reason(struct lane *l, uint32_t epoch, const char *reason)
{
	struct msg_lane_down m = {.lane = (uint16_t)lane_index(l), .epoch = epoch};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.why, sizeof m.why, "%s", reason);
	msg_lane_down_encode(&w, &m);
	pair_forge(&p, SOURCE, MSG_LANE_DOWN, body, w.used);
	fail_as(OUT_CONNECT, "refused to order");
	return DIAL_PEER_KNOWS;
}

int __wrap_verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
		      const union address *from, const union address *to, struct verbs **prepared,
		      uint64_t began_ms, uint64_t deadline_ms, struct wire **out)
{
	const char *reason = atomic_load(&peer_reason);
	unsigned left = atomic_load(&refusals);

	(void)from;
	(void)prepared;
	(void)began_ms;
	atomic_fetch_add(&rdma_dials, 1);
	if (reason)
		return refuse_with_reason(l, epoch, reason);
	if (left > 0) {
		atomic_store(&refusals, left - 1);
		if (left < ROUNDS - 1 && clock_left(deadline_ms) < LATER_MS)
			atomic_store(&hurried, true);
		return fail_as(OUT_CONNECT, "refused to order");
	}
	return __real_tcp_dial(l, epoch, key, to, 1, deadline_ms, out);
}

bool __wrap_verbs_present(char *why, size_t size)
{
	(void)why;
	(void)size;
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
	(void)addr;
	(void)lo;
	(void)hi;
	*port = porter_tcp_port(porter);
	return 0;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	tcp = TCP_OPEN;
	atomic_store(&closes, false);
	atomic_store(&rdma_dials, 0);
	atomic_store(&tcp_dials, 0);
	atomic_store(&later_dials, 0);
	atomic_store(&refusals, 0);
	atomic_store(&hurried, false);
	atomic_store(&peer_reason, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	session_pair_close(&p);
	return 0;
}

/* Blocks 20, 40 and 60 of the last lane each break its connection, once in this process. */
static void carry(unsigned lanes)
{
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.want = TRANSPORT_AUTO;
		p.ends[i].o.lanes = lanes;
		p.ends[i].o.timeout_ms = TIMEOUT_MS;
	}
	if (session_pair_open(&p) < 0)
		print_error("%s / %s\n", p.ends[0].why.text, p.ends[1].why.text);
	assert_non_null(p.ends[SOURCE].s);
	assert_non_null(p.ends[SINK].s);
	pair_start(&p, BLOCKS);
	if (pair_finish(&p) < 0) {
		print_error("%s\n", p.ends[SOURCE].jobs[lanes - 1].why.text);
		fail();
	}
	assert_int_equal(lane_stored(session_lane(p.ends[SOURCE].s, lanes - 1)), BLOCKS);
	/* TCP was tried first. */
	assert_true(atomic_load(&tcp_dials) > 0);
}

static void test_lane_stays_on_rdma_when_tcp_is_refused(void **state)
{
	(void)state;
	tcp = TCP_REFUSED;
	carry(1);
	assert_int_equal(atomic_load(&rdma_dials), 4);
}

/* When TCP does not answer, some of the time to reconnect is left for RDMA. */
static void test_lane_stays_on_rdma_when_tcp_is_silent(void **state)
{
	(void)state;
	tcp = TCP_SILENT;
	carry(2);
	assert_int_equal(atomic_load(&rdma_dials), 5);
}

static void close_tcp(struct lane_job *j, struct block *b, uint64_t number)
{
	(void)b;
	if (j->end == SOURCE && j->index == 2 && number == CLOSE_AT)
		atomic_store(&closes, true);
}

/* A lane moves to TCP, breaks at block 80, and TCP cannot be reached by then. */
static void test_lane_returns_to_rdma_when_tcp_closes_later(void **state)
{
	(void)state;
	p.work = close_tcp;
	carry(3);
	assert_true(atomic_load(&tcp_dials) > 1);
	assert_int_equal(atomic_load(&rdma_dials), 6);
}

/* The deadline cuts the last attempt short: the reason is that of an earlier attempt. */
static void test_failure_reports_the_refusal_not_the_deadline(void **state)
{
	char host[HOST_MAX];
	struct failure why;

	(void)state;
	tcp = TCP_MUTE;
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.want = TRANSPORT_TCP;
		p.ends[i].o.lanes = LANES;
		p.ends[i].o.timeout_ms = TIMEOUT_MS;
	}
	assert_int_equal(session_pair_open(&p), 0);
	pair_start(&p, BLOCKS);
	assert_int_equal(pair_finish(&p), -1);
	assert_true(session_failed(p.ends[SOURCE].s, &why, host));
	if (!strstr(why.text, "could not be reconnected within 2 s: no memory there")) {
		print_error("%s\n", why.text);
		fail();
	}
}

static void open_refused(const char *reason)
{
	atomic_store(&peer_reason, reason);
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.want = TRANSPORT_AUTO;
		p.ends[i].o.lanes = 1;
	}
	assert_int_equal(session_pair_open(&p), 0);
	pair_start(&p, 1);
	assert_int_equal(pair_finish(&p), 0);
	/* One block may arrive before it. */
	assert_true(pair_await(&p, SOURCE, MSG_CHOICE, 1));
	assert_true(atomic_load(&rdma_dials) > 0);
	assert_int_equal(atomic_load(&p.ends[SOURCE].s->ends[0].transport), TRANSPORT_TCP);
}

static void test_the_reason_of_a_refusal_is_the_other_ends(void **state)
{
	struct seen choice;

	(void)state;
	open_refused("there is no room");
	choice = pair_nth(&p, SOURCE, MSG_CHOICE, 0);
	assert_string_equal(choice.text, "refused to order: there is no room");
}

/* It is as long as a frame permits, and escaped only when it is printed. */
static void test_a_hostile_reason_of_a_refusal_is_cut(void **state)
{
	char reason[TEXT_MAX];
	struct seen choice;

	(void)state;
	memset(reason, '\033', sizeof reason - 1);
	reason[sizeof reason - 1] = '\0';
	open_refused(reason);
	choice = pair_nth(&p, SOURCE, MSG_CHOICE, 0);
	assert_memory_equal(choice.text, "refused to order: \033", 19);
	assert_true(strlen(choice.text) < 800);
}

static void demand_rdma(struct lane_job *j, struct block *b, uint64_t number)
{
	(void)b;
	if (j->end != SOURCE || number != DEMAND_AT)
		return;
	p.ends[SOURCE].s->terms.want = TRANSPORT_RDMA;
	atomic_store(&refusals, ROUNDS);
	lane_break(j->lane, 0, "broken to order");
}

/* With RDMA demanded, each round of attempts has at least the time of the one before. */
static void test_later_rdma_rounds_have_no_less_time(void **state)
{
	(void)state;
	p.work = demand_rdma;
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.want = TRANSPORT_AUTO;
		p.ends[i].o.lanes = 1;
		p.ends[i].o.timeout_ms = ROUNDS_TIMEOUT_MS;
	}
	assert_int_equal(session_pair_open(&p), 0);
	pair_start(&p, BLOCKS);
	assert_int_equal(pair_finish(&p), 0);
	assert_int_equal(atomic_load(&refusals), 0);
	assert_false(atomic_load(&hurried));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_lane_stays_on_rdma_when_tcp_is_refused),
		T(test_lane_stays_on_rdma_when_tcp_is_silent),
		T(test_lane_returns_to_rdma_when_tcp_closes_later),
		T(test_failure_reports_the_refusal_not_the_deadline),
		T(test_the_reason_of_a_refusal_is_the_other_ends),
		T(test_a_hostile_reason_of_a_refusal_is_cut),
		T(test_later_rdma_rounds_have_no_less_time),
#undef T
	};

	signal(SIGPIPE, SIG_IGN);
	/* A process counts each fault once, so each test has a lane of its own. */
	setenv("SLUICE_FAULT",
	       "break:lane=0,block=20;break:lane=0,block=40;break:lane=0,block=60;"
	       "break:lane=1,block=20;break:lane=1,block=40;break:lane=1,block=60;"
	       "break:lane=2,block=20;break:lane=2,block=40;break:lane=2,block=60;"
	       "break:lane=2,block=80;break:lane=3,block=20",
	       1);
	return cmocka_run_group_tests_name("mend_rdma", tests, NULL, NULL);
}
