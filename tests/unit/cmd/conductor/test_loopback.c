/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/io.h"
#include "cmd/conductor/loopback.h"
#include <cmocka.h>

enum { LONG_MS = 60000 };

static int listener;
static unsigned port;

static int open_listener(void **state)
{
	(void)state;
	listener = loopback_listen(&port);
	return listener < 0;
}

static int close_listener(void **state)
{
	(void)state;
	close_fd(listener);
	return 0;
}

static int accept_caller(void)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	int fd;

	assert_int_equal(poll(&p, 1, LONG_MS), 1);
	fd = loopback_accept(listener);
	assert_true(fd >= 0);
	return fd;
}

static void test_caller_of_this_user_is_ours(void **state)
{
	int caller = loopback_connect(port), fd = accept_caller();

	(void)state;
	assert_true(caller >= 0);
	assert_int_equal(loopback_peer(fd), LOOPBACK_OURS);
	close_fd(fd);
	close_fd(caller);
}

static void test_closed_caller_is_gone(void **state)
{
	int caller = loopback_connect(port), fd = accept_caller();

	(void)state;
	close_fd(caller);
	assert_int_equal(loopback_peer(fd), LOOPBACK_GONE);
	close_fd(fd);
}

static void test_reset_caller_is_gone(void **state)
{
	const struct linger now = {.l_onoff = 1};
	int caller = loopback_connect(port), fd = accept_caller();
	struct pollfd p = {.fd = fd, .events = POLLIN};

	(void)state;
	assert_int_equal(setsockopt(caller, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
	close_fd(caller);
	assert_int_equal(poll(&p, 1, LONG_MS), 1);
	assert_int_equal(loopback_peer(fd), LOOPBACK_GONE);
	close_fd(fd);
}

static void test_bad_descriptor_is_unknown(void **state)
{
	(void)state;
	assert_int_equal(loopback_peer(-1), LOOPBACK_UNKNOWN);
	assert_int_equal(errno, EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_caller_of_this_user_is_ours, open_listener,
						close_listener),
		cmocka_unit_test_setup_teardown(test_closed_caller_is_gone, open_listener,
						close_listener),
		cmocka_unit_test_setup_teardown(test_reset_caller_is_gone, open_listener,
						close_listener),
		cmocka_unit_test(test_bad_descriptor_is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
