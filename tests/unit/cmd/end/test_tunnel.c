/* SPDX-License-Identifier: Apache-2.0 */
/* A control channel that one process carries for another one. */
#include "cmd/end/tunnel.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail
#include "base/clock.h"
#include "base/fail.h"

enum { LONG_ENOUGH_MS = 200 };

struct carried {
	struct channel *ch;
	int in, out, rc;
	struct failure failure;
};

static void *carry(void *arg)
{
	struct carried *c = arg;

	c->rc = tunnel_run(c->ch, "", 0, c->in, c->out);
	c->failure = *failed();
	return NULL;
}

/* A thread carries what comes from from_end[1] to net[1], and from there to an end that reads no
 * more. */
static int from_end[2], net[2];
static struct carried carried;
static pthread_t thread;

static int start_tunnel(void **state)
{
	int to_end[2];

	(void)state;
	assert_int_equal(pipe(to_end), 0);
	assert_int_equal(pipe(from_end), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, net), 0);
	assert_int_equal(channel_over_fds(net[0], net[0], &carried.ch), 0);
	carried.in = from_end[0];
	carried.out = to_end[1];
	close(to_end[0]);
	assert_int_equal(write(net[1], "frame", 5), 5);
	return pthread_create(&thread, NULL, carry, &carried);
}

static int close_net(void **state)
{
	(void)state;
	return close(net[1]);
}

/* An end that has failed reads no more, and its verdict is still to come. */
static void last_words_arrive_after_the_reader_left(void **state)
{
	char got[16];

	(void)state;
	/* It must not end before the end does. */
	assert_int_equal(poll(&(struct pollfd){net[1], POLLIN, 0}, 1, LONG_ENOUGH_MS), 0);
	assert_int_equal(write(from_end[1], "verdict", 7), 7);
	close(from_end[1]);
	pthread_join(thread, NULL);
	assert_int_equal(carried.rc, 0);
	assert_int_equal(read(net[1], got, sizeof got), 7);
	assert_memory_equal(got, "verdict", 7);
}

/* An end that reads no more, and neither speaks nor ends. */
static void an_end_that_is_stuck_does_not_hold_it(void **state)
{
	(void)state;
	pthread_join(thread, NULL);
	assert_int_equal(carried.rc, -1);
	assert_int_equal(carried.failure.code, OUT_SOCKET);
	assert_string_equal(carried.failure.text, "pass on what was received: Broken pipe");
	close(from_end[1]);
}

/* Writes to the tunnel until it takes nothing more. Returns how much it took. */
static size_t fill_tunnel(void)
{
	static const char bytes[4096];
	struct pollfd p = {from_end[1], POLLOUT, 0};
	size_t sum = 0;
	ssize_t n;

	assert_int_equal(fcntl(from_end[1], F_SETFL, O_NONBLOCK), 0);
	do {
		while ((n = write(from_end[1], bytes, sizeof bytes)) > 0)
			sum += (size_t)n;
	} while (poll(&p, 1, LONG_ENOUGH_MS) > 0);
	return sum;
}

/* The peer is there and reads nothing, and the end has gone. */
static void a_peer_that_takes_nothing_does_not_hold_it(void **state)
{
	(void)state;
	assert_true(fill_tunnel() > 0);
	close(from_end[1]);
	pthread_join(thread, NULL);
	assert_int_equal(carried.rc, 0);
}

static void a_peer_that_takes_late_gets_all(void **state)
{
	size_t sent = fill_tunnel(), got = 0;
	uint64_t last_ms = clock_ms(), pause_ms = 0;
	char bytes[4096];
	ssize_t n;

	(void)state;
	close(from_end[1]);
	while ((n = read(net[1], bytes, sizeof bytes)) > 0) {
		uint64_t now_ms = clock_ms();

		pause_ms = now_ms - last_ms > pause_ms ? now_ms - last_ms : pause_ms;
		last_ms = now_ms;
		got += (size_t)n;
	}
	pthread_join(thread, NULL);
	/* On a busy machine this peer may have taken nothing for a second, too. */
	assert_true(got == sent || pause_ms >= 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(last_words_arrive_after_the_reader_left,
						start_tunnel, close_net),
		cmocka_unit_test_setup_teardown(an_end_that_is_stuck_does_not_hold_it, start_tunnel,
						close_net),
		cmocka_unit_test_setup_teardown(a_peer_that_takes_nothing_does_not_hold_it,
						start_tunnel, close_net),
		cmocka_unit_test_setup_teardown(a_peer_that_takes_late_gets_all, start_tunnel,
						close_net),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
