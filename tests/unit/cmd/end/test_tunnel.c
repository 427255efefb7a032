/* SPDX-License-Identifier: Apache-2.0 */
/* A control channel that one process carries for another one. */
#include "cmd/end/tunnel.h"

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

enum { LONG_ENOUGH_MS = 200 };

struct carried {
	struct channel *ch;
	int in, out, rc;
};

static void *carry(void *arg)
{
	struct carried *c = arg;

	c->rc = tunnel_run(c->ch, "", 0, c->in, c->out);
	return NULL;
}

/* An end that has failed reads no more, and its verdict is still to come. */
static void last_words_arrive_after_the_reader_left(void **state)
{
	int to_end[2], from_end[2], net[2];
	struct carried c;
	pthread_t thread;
	char got[16];

	(void)state;
	assert_int_equal(pipe(to_end), 0);
	assert_int_equal(pipe(from_end), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, net), 0);
	assert_int_equal(channel_over_fds(net[0], net[0], &c.ch), 0);
	c.in = from_end[0];
	c.out = to_end[1];
	close(to_end[0]);
	assert_int_equal(write(net[1], "frame", 5), 5);
	assert_int_equal(pthread_create(&thread, NULL, carry, &c), 0);
	/* It must not end before the end does. */
	assert_int_equal(poll(&(struct pollfd){net[1], POLLIN, 0}, 1, LONG_ENOUGH_MS), 0);
	assert_int_equal(write(from_end[1], "verdict", 7), 7);
	close(from_end[1]);
	pthread_join(thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(read(net[1], got, sizeof got), 7);
	assert_memory_equal(got, "verdict", 7);
	close(net[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(last_words_arrive_after_the_reader_left),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
