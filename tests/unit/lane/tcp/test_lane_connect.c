/* SPDX-License-Identifier: Apache-2.0 */

/* Connecting a TCP wire: which address wins, which are refused, and what is reported. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/tos.h"
#include "lane/connect.h"
#include "lane/tcp/tcp_connect.h"
#include "lane/wire.h"

enum { LONG_MS = 20000, SOON_MS = 2000 };

static union address loopback(void)
{
	return (union address){
		.in4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
}

static int listen_anywhere(union address *at)
{
	unsigned port;
	int fd;

	*at = loopback();
	fd = tcp_listen(at, 0, 0, 0, &port);
	at->in4.sin_port = htons((uint16_t)port);
	return fd;
}

static const struct lane_key key = {.secret = {1, 2, 3}, .nonces = {{4}, {5}}, .session = 6};

static int never_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	(void)ctx;
	(void)l;
	(void)epoch;
	(void)why;
	return fail_as(OUT_CONNECT, "not mended");
}

static struct lane *open_lane(unsigned index, enum lane_side side)
{
	struct lane_setup setup = {
		.index = index,
		.side = side,
		.depth = 4,
		.block_size = 4096,
		.mend = never_mend,
	};
	struct lane *l;

	assert_int_equal(lane_open(&setup, &l), 0);
	return l;
}

/* A peer in a thread of its own that accepts one connection and behaves as these fields say. */
struct answerer {
	int fd;
	struct lane_key key;
	unsigned lane;
	uint32_t epoch;
	enum lane_side side;
	bool silent; /* sends nothing until the caller leaves */
	bool parrot; /* sends the caller's hello back */
	pthread_t thread;
};

static void *answer(void *arg)
{
	struct answerer *a = arg;
	uint8_t heard[LANE_HELLO_SIZE], said[LANE_HELLO_SIZE];
	struct lane_hello h = {
		.from = (uint8_t)a->side,
		.accepting = 1,
		.session = a->key.session,
		.lane = (uint16_t)a->lane,
		.epoch = a->epoch,
		.block_size = 4096,
		.depth = 4,
	};
	struct pollfd p = {.fd = a->fd, .events = POLLIN};
	int fd;

	if (poll(&p, 1, LONG_MS) <= 0)
		return NULL;
	fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC);
	lane_hello_sign(&h, &a->key);
	lane_hello_encode(&h, said);
	if (fd >= 0 && read_full(fd, heard, sizeof heard) == sizeof heard && !a->silent)
		write_full(fd, a->parrot ? heard : said, sizeof said);
	/* Until the caller leaves. */
	if (fd >= 0)
		read_full(fd, heard, sizeof heard);
	close_fd(fd);
	return NULL;
}

static struct answerer right_answerer(union address *at)
{
	return (struct answerer){
		.fd = listen_anywhere(at),
		.key = key,
		.lane = 2,
		.epoch = 5,
		.side = LANE_SINK,
	};
}

static void start(struct answerer *a)
{
	assert_true(a->fd >= 0);
	assert_int_equal(pthread_create(&a->thread, NULL, answer, a), 0);
}

static void stop_answerer(struct answerer *a)
{
	pthread_join(a->thread, NULL);
	close_fd(a->fd);
}

/* Dial as source of lane 2, epoch 5. */
static int dial_connect(struct lane *l, const union address *to, unsigned n, unsigned ms)
{
	struct wire *w;
	int rc = tcp_dial(l, 5, &key, to, n, clock_ms() + ms, &w);

	if (rc == 0)
		w->ops->close(w);
	return rc;
}

static union address closed_port(void)
{
	union address at;

	close_fd(listen_anywhere(&at));
	return at;
}

static void test_refused_connection_names_address_and_port(void **arg)
{
	union address to[2] = {closed_port(), closed_port()};
	struct lane *l = open_lane(2, LANE_SOURCE);
	char where[2][80], want[300];

	(void)arg;
	assert_int_equal(dial_connect(l, to, 2, LONG_MS), -1);
	snprintf(want, sizeof want,
		 "connect lane 2 to %s: Connection refused; to %s: Connection refused",
		 address_text(&to[0], where[0], sizeof where[0]),
		 address_text(&to[1], where[1], sizeof where[1]));
	assert_string_equal(failed()->text, want);
	assert_int_equal(failed()->code, OUT_CONNECT);
	lane_close(l);
}

static void test_refused_type_of_service_has_a_reason(void **arg)
{
	union address to = {.in6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)}};
	/* An octet that no option accepts; IPv4 would take its last 8 bits (Linux). */
	struct lane_setup setup = {
		.side = LANE_SOURCE,
		.depth = 4,
		.block_size = 4096,
		.tos = 0x100 + 1,
		.mend = never_mend,
	};
	struct lane *l;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)arg;
	if (fd < 0)
		return; /* this host has no IPv6 */
	close_fd(fd);
	to.in6.sin6_addr = in6addr_loopback;
	assert_int_equal(lane_open(&setup, &l), 0);
	assert_int_equal(dial_connect(l, &to, 1, LONG_MS), -1);
	assert_non_null(strstr(failed()->text, ": set the type of service: Invalid argument"));
	lane_close(l);
}

static void test_wrong_peers_are_refused(void **arg)
{
	union address to[7];
	struct answerer a[6];
	struct lane *l = open_lane(2, LANE_SOURCE);

	(void)arg;
	for (unsigned i = 0; i < 6; i++)
		a[i] = right_answerer(&to[i]);
	a[0].key.secret[0] ^= 1;
	a[1].parrot = true;
	a[2].epoch = 4;
	a[3].side = LANE_SOURCE;
	a[4].lane = 1;
	a[5].key.session ^= 1;
	to[6] = closed_port();
	for (unsigned i = 0; i < 6; i++)
		start(&a[i]);
	assert_int_equal(dial_connect(l, to, 7, LONG_MS), -1);
	assert_int_equal(failed()->code, OUT_AUTH);
	for (unsigned i = 0; i < 6; i++)
		stop_answerer(&a[i]);
	assert_non_null(strstr(failed()->text, "wrong MAC, so not from the peer"));
	assert_non_null(strstr(failed()->text, "from the wrong end"));
	assert_non_null(strstr(failed()->text, "lane 2 epoch 4, expected"));
	assert_non_null(strstr(failed()->text, "both ends are sources"));
	assert_non_null(strstr(failed()->text, "lane 1 epoch 5, expected"));
	assert_non_null(strstr(failed()->text, "session 0000000000000007, expected"));
	assert_non_null(strstr(failed()->text, "Connection refused"));
	lane_close(l);
}

static void test_right_peer_wins_among_wrong_ones(void **arg)
{
	union address to[4];
	struct answerer a[3];
	struct lane *l = open_lane(2, LANE_SOURCE);

	(void)arg;
	for (unsigned i = 0; i < 3; i++)
		a[i] = right_answerer(&to[i]);
	to[3] = to[2];
	to[2] = closed_port();
	a[0].key.secret[0] ^= 1;
	a[1].silent = true;
	for (unsigned i = 0; i < 3; i++)
		start(&a[i]);
	assert_int_equal(dial_connect(l, to, 4, LONG_MS), 0);
	for (unsigned i = 0; i < 3; i++)
		stop_answerer(&a[i]);
	lane_close(l);
}

static void test_silent_address_times_out(void **arg)
{
	union address to;
	struct answerer a = right_answerer(&to);
	struct lane *l = open_lane(2, LANE_SOURCE);
	uint64_t before = clock_ms();

	(void)arg;
	a.silent = true;
	start(&a);
	assert_int_equal(dial_connect(l, &to, 1, 200), -1);
	assert_non_null(strstr(failed()->text, "connected, but no answer in time"));
	assert_true(clock_ms() - before >= 200);
	assert_true(clock_ms() - before < LONG_MS);
	stop_answerer(&a);
	lane_close(l);
}

static void *abort_soon(void *lane)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	lane_abort(lane);
	return NULL;
}

static void test_abort_ends_dialing(void **arg)
{
	union address to;
	struct answerer a = right_answerer(&to);
	struct lane *l = open_lane(2, LANE_SOURCE);
	uint64_t before = clock_ms();
	pthread_t t;

	(void)arg;
	a.silent = true;
	start(&a);
	assert_int_equal(pthread_create(&t, NULL, abort_soon, l), 0);
	assert_int_equal(dial_connect(l, &to, 1, LONG_MS), -1);
	assert_true(clock_ms() - before < 100 + SOON_MS);
	pthread_join(t, NULL);
	stop_answerer(&a);
	lane_close(l);
}

static void test_listen_finds_a_free_port_in_its_range(void **arg)
{
	union address first, at = loopback();
	char want[80];
	unsigned port, taken;
	int held, fd;

	(void)arg;
	held = listen_anywhere(&first);
	assert_true(held >= 0);
	taken = ntohs(first.in4.sin_port);
	assert_int_equal(tcp_listen(&at, taken, taken, 0, &port), -1);
	snprintf(want, sizeof want, "listen on 127.0.0.1:%u: Address already in use", taken);
	assert_string_equal(failed()->text, want);
	if (taken + 20 < 65535) {
		fd = tcp_listen(&at, taken, taken + 20, 0, &port);
		assert_true(fd >= 0);
		assert_in_range(port, taken + 1, taken + 20);
		close_fd(fd);
	}
	close_fd(held);
}

static int octet_of(int fd, int family)
{
	int octet = -1;
	socklen_t len = sizeof octet;

	if (family == AF_INET6)
		assert_int_equal(getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &octet, &len), 0);
	else
		assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &octet, &len), 0);
	return octet;
}

/* The kernel keeps the two bits of ECN for itself. */
static void test_type_of_service_is_set_and_inherited(void **arg)
{
	union address at[] = {address_loopback(AF_INET, 0), address_loopback(AF_INET6, 0)};

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		int family = at[i].sa.sa_family, listener, near, far;
		union address to;
		unsigned port;

		listener = tcp_listen(&at[i], 0, 0, 0xb9 + 1, &port);
		if (listener < 0 && family == AF_INET6)
			continue; /* this host has no IPv6 */
		to = address_with_port(&at[i], port);
		assert_int_equal(octet_of(listener, family), 0xb8);
		near = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(octet_of(near, family), 0);
		assert_int_equal(tos_set(near, family, 0), 0);
		assert_int_equal(octet_of(near, family), 0);
		assert_int_equal(tos_set(near, family, 0x48 + 1), 0);
		assert_int_equal(octet_of(near, family), 0x48);
		assert_int_equal(connect(near, &to.sa, address_len(&to)), 0);
		far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		assert_int_equal(octet_of(far, family), 0xb8);
		close_fd(near);
		close_fd(far);
		close_fd(listener);
	}
	assert_int_equal(tos_set(-1, AF_INET, 1), -1);
}

static void test_addresses_are_printed(void **arg)
{
	union address a = {.in6 = {.sin6_family = AF_INET6}};
	char text[80];

	(void)arg;
	inet_pton(AF_INET6, "fe80::1", &a.in6.sin6_addr);
	assert_string_equal(address_text(&a, text, sizeof text), "fe80::1");
	a.in6.sin6_port = htons(7000);
	assert_string_equal(address_text(&a, text, sizeof text), "[fe80::1]:7000");
	a.in6.sin6_scope_id = 1;
	assert_string_equal(address_text(&a, text, sizeof text), "[fe80::1%lo]:7000");
	a = loopback();
	assert_string_equal(address_text(&a, text, sizeof text), "127.0.0.1");
	assert_int_equal(address_len(&a), sizeof a.in4);
	a.in4.sin_port = htons(65535);
	assert_string_equal(address_text(&a, text, sizeof text), "127.0.0.1:65535");
	assert_string_equal(address_text(&a, text, 8), "127.0.0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_connection_names_address_and_port),
		cmocka_unit_test(test_wrong_peers_are_refused),
		cmocka_unit_test(test_right_peer_wins_among_wrong_ones),
		cmocka_unit_test(test_silent_address_times_out),
		cmocka_unit_test(test_abort_ends_dialing),
		cmocka_unit_test(test_listen_finds_a_free_port_in_its_range),
		cmocka_unit_test(test_type_of_service_is_set_and_inherited),
		cmocka_unit_test(test_refused_type_of_service_has_a_reason),
		cmocka_unit_test(test_addresses_are_printed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
