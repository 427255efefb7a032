/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bytes change on the way of encrypted lanes: bits flip, bytes are lost, repeated or exchanged, and
 * connections are cut, anywhere in the heads, the data and the tags of blocks, once, twice, or on
 * every connection, so that what is sent again is changed too. Bits of the hello flip as well. No
 * changed byte may arrive, and a session that fails says that it was damaged. A changed hello comes
 * from a stranger, who gets no answer: then there is no connection.
 */

#include "session_pair.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum {
	BLOCKS = 6,
	LAST = LANE_HEAD + 888,
	SENT = LANE_HELLO_SIZE + (BLOCKS - 1) * LANE_HEAD + 16 + 997 + 1994 + 2991 + 3988 + LAST,
	HEADS = LANE_HELLO_SIZE + LANE_HEAD + 16 + LANE_HEAD, /* until the second block's data */
	ALWAYS = 1000,
};

static struct pair p;
static uint32_t seed;
static unsigned ended[UINT8_MAX + 1]; /* with this exit code */

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

/* Every second one is in the hello or one of the first heads. */
static void set_flip(unsigned number)
{
	static const unsigned times[] = {1, 2, ALWAYS};

	atomic_store(&p.proxy.flip_kind, FLIP);
	atomic_store(&p.proxy.flip_at, draw(number & 1 ? SENT : HEADS));
	atomic_store(&p.proxy.flip_with, 1u << draw(8));
	atomic_store(&p.proxy.flips, times[draw(3)]);
}

/* Behind the hello, whose reader would wait for lost bytes until its time is over, and before the
 * last block, behind which nothing shows that bytes were lost: who keeps bytes back delays the
 * session. For the same reason bytes are lost once: later connections end with that block. A
 * connection that always ends is not damaged, but lost. */
static void set_change(enum change_kind kind)
{
	static const unsigned times[] = {1, 2, ALWAYS};
	unsigned choices = kind == LOSE ? 1 : kind == CUT ? 2 : 3;

	atomic_store(&p.proxy.flip_kind, kind);
	atomic_store(&p.proxy.flip_at,
		     LANE_HELLO_SIZE + draw(SENT - LAST - CHANGED_BYTES - LANE_HELLO_SIZE));
	atomic_store(&p.proxy.flips, times[draw(choices)]);
}

static void set_mutation(unsigned number)
{
	enum change_kind kind = number % 3 ? FLIP : (enum change_kind)draw(CHANGE_KINDS);

	if (kind == FLIP)
		set_flip(number);
	else
		set_change(kind);
}

static const struct failure *failed_with(void)
{
	static struct failure f;
	char host[HOST_MAX];

	for (unsigned i = 0; i < 2; i++) {
		if (!p.ends[i].s)
			return &p.ends[i].why;
		if (session_failed(p.ends[i].s, &f, host))
			return &f;
	}
	return NULL;
}

static bool is_refusal(const struct failure *f, uint64_t at)
{
	if (!f)
		return false;
	return f->code == OUT_INTEGRITY || f->code == OUT_AUTH ||
	       (f->code == OUT_CONNECT && at < LANE_HELLO_SIZE);
}

static int transfer(void)
{
	for (unsigned i = 0; i < 2; i++) {
		p.ends[i].o.lanes = 1;
		p.ends[i].o.encrypt = ENCRYPT_ON;
	}
	assert_int_equal(pair_use_proxy(&p), 0);
	if (session_pair_open(&p))
		return -1;
	pair_start(&p, BLOCKS);
	return pair_finish(&p);
}

static void run_mutation(unsigned number)
{
	const struct failure *f;
	uint64_t at;
	int rc;

	pair_init(&p);
	set_mutation(number);
	at = atomic_load(&p.proxy.flip_at);
	rc = transfer();
	f = failed_with();
	if (p.ends[SINK].jobs[0].disorder || (rc == 0 && atomic_load(&p.proxy.came) < 2))
		fail_msg("run %u, byte %llu: accepted", number, (unsigned long long)at);
	if (rc && !is_refusal(f, at))
		fail_msg("run %u, byte %llu: %d \"%s\"", number, (unsigned long long)at,
			 f ? (int)f->code : -1, f ? f->text : "");
	ended[rc ? f->code : 0]++;
	session_pair_close(&p);
}

static void test_no_mutation_is_accepted(void **state)
{
	const char *often = getenv("SLUICE_COUNT");
	unsigned count = 1000 * (often && atoi(often) > 1 ? (unsigned)atoi(often) : 1);

	(void)state;
	for (unsigned i = 0; i < count; i++) {
		seed = i;
		run_mutation(i);
	}
	/* All three kinds of end were reached. */
	assert_true(ended[0] > 0 && ended[OUT_INTEGRITY] > 0 && ended[OUT_CONNECT] > 0);
	print_message("# mended %u, damaged %u, not connected %u, authentication %u\n", ended[0],
		      ended[OUT_INTEGRITY], ended[OUT_CONNECT], ended[OUT_AUTH]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_mutation_is_accepted),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("mutations", tests, NULL, NULL);
}
