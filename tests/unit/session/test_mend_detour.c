/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A lane over ssh breaks and cannot be reconnected: the conductor's reason counts if it is newer
 * than the break.
 */

#include "session_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct pair p;
static _Atomic unsigned listening_port;

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	session_pair_close(&p);
	return 0;
}

/* The test sends the only LANE_CHECK. */
static enum verdict take_port(struct pair *pair, unsigned from, uint8_t type, uint8_t *body,
			      uint32_t *len)
{
	struct frame f = {.type = type, .len = *len, .body = body};
	struct msg_detour m;

	(void)pair;
	(void)from;
	if (type == MSG_LISTENING && msg_detour_decode(&f, &m) == 0)
		atomic_store(&listening_port, m.port);
	return type == MSG_LANE_CHECK ? DROP : PASS;
}

static void send_detour(const char *why)
{
	struct msg_detour m = {.port = (uint16_t)p.proxy.port};
	uint8_t body[sizeof m + 8];
	struct writer w = writer_of(body, sizeof body);

	snprintf(m.why, sizeof m.why, "%s", why);
	msg_detour_encode(&w, &m);
	pair_forge(&p, SINK, MSG_DETOUR, body, w.used);
}

/* All earlier frames have been handled. */
static void await_heard(void)
{
	struct msg_lane_check m = {.lane = 0, .epoch = 0};
	uint8_t body[32];
	struct writer w = writer_of(body, sizeof body);

	msg_lane_check_encode(&w, &m);
	pair_forge(&p, SINK, MSG_LANE_CHECK, body, w.used);
	assert_true(pair_await(&p, SINK, MSG_LANE_HELD, 1));
}

/* The connecting end is the sink: it answers LANE_CHECK. */
static void carry_over_detour(void)
{
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.has_conductor = true;
		p.ends[i].o.want = TRANSPORT_SSH;
		p.ends[i].o.lanes = 1;
		p.ends[i].o.timeout_ms = 3000;
	}
	p.ends[SOURCE].o.listens = true;
	p.ends[SINK].o.listens = false;
	p.filter = take_port;
	assert_int_equal(pair_use_proxy(&p), 0);
	assert_int_equal(session_pair_open(&p), 0);
	assert_true(pair_await(&p, SOURCE, MSG_LISTENING, 1));
	atomic_store(&p.proxy.target, atomic_load(&listening_port));
	pair_start(&p, 1u << 30);
	send_detour("");
	assert_true(await_count(&p.ends[SINK].jobs[0].done, 20));
}

static void cut_for_ever(void)
{
	atomic_store(&p.proxy.closed, true);
	atomic_fetch_add(&p.proxy.cuts, 1);
}

static void ended_with(struct failure *f)
{
	char host[HOST_MAX];

	assert_int_equal(pair_finish(&p), -1);
	assert_true(session_failed(p.ends[SINK].s, f, host));
	assert_int_equal(f->code, OUT_PEER_LOST);
	assert_non_null(strstr(f->text, "lane 0 could not be reconnected within 3 s: "));
}

static void test_reason_older_than_the_break_is_ignored(void **state)
{
	struct failure f;

	(void)state;
	carry_over_detour();
	send_detour("a reason of long ago");
	await_heard();
	cut_for_ever();
	ended_with(&f);
	assert_null(strstr(f.text, "a reason of long ago"));
}

static void test_reason_newer_than_the_break_is_reported(void **state)
{
	struct failure f;

	(void)state;
	carry_over_detour();
	send_detour("a reason of long ago");
	await_heard();
	cut_for_ever();
	assert_true(pair_await(&p, SINK, MSG_LANE_DOWN, 1));
	send_detour("a reason of now");
	ended_with(&f);
	assert_non_null(strstr(f.text, ": a reason of now"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_reason_older_than_the_break_is_ignored),
		T(test_reason_newer_than_the_break_is_reported),
#undef T
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("mend_detour", tests, NULL, NULL);
}
