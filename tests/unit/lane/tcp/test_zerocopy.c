/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sending without copying: notifications are consumed, and zero-copy ends where the kernel copies
 * anyway.
 */

#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lane/tcp/tcp_zerocopy.h"

enum { PIECE = 128 << 10, PIECES = 40 };

static int near, far;
static uint8_t sent[PIECE], got[PIECE];

static int connect_both(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &len) || connect(near, (void *)&at, len))
		return -1;
	far = accept(listener, NULL, NULL);
	close(listener);
	for (unsigned i = 0; i < sizeof sent; i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	return far < 0 ? -1 : 0;
}

static int close_both(void **state)
{
	(void)state;
	close(near);
	close(far);
	return 0;
}

static void read_piece(void)
{
	memset(got, 0, sizeof got);
	assert_int_equal(recv(far, got, sizeof got, MSG_WAITALL), sizeof got);
	assert_memory_equal(got, sent, sizeof got);
}

static void send_piece(struct zerocopy *z)
{
	for (size_t at = 0; at < sizeof sent;) {
		ssize_t n = zerocopy_send(z, near, sent + at, sizeof sent - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
}

static void wait_error(void)
{
	struct pollfd p = {.fd = near};

	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_true(p.revents & POLLERR);
}

static void notifications_are_consumed(void **state)
{
	struct zerocopy z;

	(void)state;
	zerocopy_begin(&z, near, PIECE);
	assert_true(z.on);
	send_piece(&z);
	assert_int_equal(z.waiting, 1);
	read_piece();
	wait_error();
	assert_true(zerocopy_reap(&z, near) > 0);
	assert_int_equal(z.waiting, 0);
	/* On loopback the kernel copies, so zero-copy is switched off. */
	assert_false(z.on);
	assert_int_equal(zerocopy_reap(&z, near), 0);
}

static void no_notification_is_left_pending(void **state)
{
	struct pollfd p = {.fd = near};
	struct zerocopy z;

	(void)state;
	zerocopy_begin(&z, near, PIECE);
	for (unsigned i = 0; i < PIECES; i++) {
		send_piece(&z);
		read_piece();
		/* As on a path where the kernel does not copy. */
		z.on = true;
	}
	while (z.waiting > 0) {
		wait_error();
		assert_true(zerocopy_reap(&z, near) > 0);
	}
	assert_int_equal(poll(&p, 1, 0), 0);
}

static void small_blocks_and_other_sockets_are_copied(void **state)
{
	struct zerocopy z;
	int pair[2];

	(void)state;
	zerocopy_begin(&z, near, 16 << 10);
	assert_false(z.on);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	zerocopy_begin(&z, pair[0], PIECE);
	assert_false(z.on);
	close(pair[0]);
	close(pair[1]);
}

static void tail_of_a_block_is_copied(void **state)
{
	struct zerocopy z;

	(void)state;
	zerocopy_begin(&z, near, PIECE);
	assert_int_equal(zerocopy_send(&z, near, sent, 100), 100);
	assert_int_equal(z.waiting, 0);
	assert_true(z.on);
	assert_int_equal(recv(far, got, 100, MSG_WAITALL), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(notifications_are_consumed, connect_both,
						close_both),
		cmocka_unit_test_setup_teardown(no_notification_is_left_pending, connect_both,
						close_both),
		cmocka_unit_test(small_blocks_and_other_sockets_are_copied),
		cmocka_unit_test_setup_teardown(tail_of_a_block_is_copied, connect_both,
						close_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
