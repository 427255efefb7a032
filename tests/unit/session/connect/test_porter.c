/* SPDX-License-Identifier: Apache-2.0 */
#include "session/connect/porter.h"
#include "session/connect/strangers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/worker.h"
#include "session/channel/key.h"
#include <cmocka.h>

enum { LANES = 2, DEPTH = 4, BLOCK = 4096 };

static struct psk key = {{1, 2, 3}}, wrong = {{4, 5, 6}};

static union address loopback(unsigned port)
{
	return (union address){.in4 = {.sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port),
				       .sin_addr = {htonl(INADDR_LOOPBACK)}}};
}

static int dial_connect(unsigned port)
{
	union address to = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, &to.sa, sizeof to.in4) == 0)
		return fd;
	close_fd(fd);
	return -1;
}

static struct porter *listening(void)
{
	union address at = loopback(0);
	struct porter *p;

	assert_int_equal(porter_new(0, &p), 0);
	assert_int_equal(porter_listen_tcp(p, &at, 0, 0), 0);
	assert_true(porter_tcp_port(p) > 0);
	return p;
}

/* True when the other end closes fd, false when it sends something or is silent for ms. */
static bool is_closed(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char byte;

	return poll(&p, 1, ms) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

/* ---- clients ------------------------------------------------------------------------------- */

struct client {
	unsigned port;
	const struct psk *key;
	uint64_t deadline;
	int rc; /* 0 once its handshake is finished */
	uint64_t ms; /* how long that took */
	struct worker worker;
};

static void *client_run(void *arg)
{
	struct client *c = arg;
	uint64_t from = clock_ms();
	struct channel *ch;
	int fd = dial_connect(c->port), rc = 0;

	c->rc = -1;
	if (fd < 0 || channel_tls_client(fd, c->key, &ch) < 0)
		return NULL;
	while ((rc = channel_handshake(ch)) == 0 && clock_left(c->deadline) > 0) {
		struct pollfd p[2];
		int n = channel_polls(ch, false, p);

		poll(p, (nfds_t)n, 50);
	}
	if (rc == 1)
		c->rc = 0;
	c->ms = clock_ms() - from;
	/* The porter has to see the handshake finished as well. */
	while (rc == 1 && c->key == &key && clock_left(c->deadline) > 0) {
		uint8_t byte;
		bool eof;

		if (channel_read(ch, &byte, 1, &eof) < 0 || eof)
			break;
		poll(NULL, 0, 10);
	}
	channel_free(ch);
	return NULL;
}

static void client_start(struct client *c, unsigned port, const struct psk *with)
{
	*c = (struct client){.port = port, .key = with, .deadline = clock_ms() + 15000};
	assert_int_equal(worker_start(&c->worker, "client", client_run, c), 0);
}

/* Admit a client with the right key now, and measure how long that takes. */
static uint64_t good_client(struct porter *p)
{
	struct channel *ch = NULL;
	uint64_t from = clock_ms(), took;
	struct client c;

	client_start(&c, porter_tcp_port(p), &key);
	assert_int_equal(porter_admit(p, &key, clock_ms() + 15000, &ch), 0);
	took = clock_ms() - from;
	channel_free(ch);
	worker_join(&c.worker);
	assert_int_equal(c.rc, 0);
	return took;
}

/* ---- listening ------------------------------------------------------------------------------- */

static void test_all_addresses_share_one_port(void **state)
{
	union address at = loopback(0), other = loopback(0);
	struct porter *p = listening();
	unsigned port = porter_tcp_port(p);
	int fd;

	(void)state;
	other.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	assert_int_equal(porter_listen_tcp(p, &other, 0, 0), 0);
	assert_int_equal(porter_tcp_port(p), port);
	at.in4.sin_addr = other.in4.sin_addr;
	at.in4.sin_port = htons((uint16_t)port);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, &at.sa, sizeof at.in4), 0);
	close_fd(fd);
	porter_free(p);
}

static void test_port_moves_when_taken_at_another_address(void **state)
{
	union address other = loopback(0);
	struct porter *p = listening(), *in_the_way;
	unsigned port = porter_tcp_port(p), end;

	(void)state;
	other.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	assert_int_equal(porter_new(0, &in_the_way), 0);
	assert_int_equal(porter_listen_tcp(in_the_way, &other, port, port), 0);
	assert_int_equal(porter_listen_tcp(p, &other, 0, 0), 0);
	assert_int_not_equal(porter_tcp_port(p), port);
	end = porter_tcp_port(p);
	close_fd(dial_connect(end));
	porter_free(p);
	porter_free(in_the_way);
}

static void test_taken_port_range_fails(void **state)
{
	union address at = loopback(0);
	struct porter *taken = listening(), *p;
	unsigned port = porter_tcp_port(taken);

	(void)state;
	assert_int_equal(porter_new(0, &p), 0);
	assert_int_equal(porter_listen_tcp(p, &at, port, port), -1);
	assert_int_equal(failed()->code, OUT_SOCKET);
	assert_non_null(strstr(failed()->text, "Address already in use"));
	porter_free(p);
	/* The next port is free (or its neighbour, if another process has just taken that). */
	assert_int_equal(porter_new(0, &p), 0);
	assert_int_equal(porter_listen_tcp(p, &at, port, port + 20), 0);
	assert_in_range(porter_tcp_port(p), port + 1, port + 20);
	porter_free(p);
	porter_free(taken);
}

static void test_porter_listens_on_all_addresses_by_default(void **state)
{
	struct porter *p;
	int fd;

	(void)state;
	assert_int_equal(porter_new(0, &p), 0);
	assert_int_equal(porter_listen_tcp(p, NULL, 0, 0), 0);
	fd = dial_connect(porter_tcp_port(p));
	assert_true(fd >= 0);
	close_fd(fd);
	porter_free(p);
}

/* ---- admitting ----------------------------------------------------------------------------------
 */

static void test_right_key_is_admitted(void **state)
{
	struct porter *p = listening();

	(void)state;
	good_client(p);
	porter_free(p);
}

static void test_admission_times_out(void **state)
{
	struct porter *p = listening();
	struct channel *ch;
	char port[16];

	(void)state;
	assert_int_equal(porter_admit(p, &key, clock_ms() + 100, &ch), -1);
	assert_int_equal(failed()->code, OUT_CONNECT);
	snprintf(port, sizeof port, "%u", porter_tcp_port(p));
	assert_non_null(strstr(failed()->text, port));
	porter_free(p);
}

static void test_wrong_key_does_not_end_the_wait(void **state)
{
	struct porter *p = listening();
	struct channel *ch;
	struct client bad[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		client_start(&bad[i], porter_tcp_port(p), &wrong);
	assert_int_equal(porter_admit(p, &key, clock_ms() + 1000, &ch), -1);
	assert_int_equal(failed()->code, OUT_CONNECT);
	good_client(p);
	for (unsigned i = 0; i < 4; i++) {
		worker_join(&bad[i].worker);
		assert_int_equal(bad[i].rc, -1);
	}
	porter_free(p);
}

static void test_other_protocols_are_disconnected(void **state)
{
	struct porter *p = listening();
	struct channel *ch;
	int fd = dial_connect(porter_tcp_port(p));

	(void)state;
	assert_int_equal(write_full(fd, "GET / HTTP/1.0\r\n\r\n", 18), 0);
	assert_int_equal(porter_admit(p, &key, clock_ms() + 300, &ch), -1);
	assert_true(is_closed(fd, 1000));
	close_fd(fd);
	porter_free(p);
}

static int silent[1000];

static void silent_come(struct porter *p, unsigned count, const char *say)
{
	for (unsigned i = 0; i < count; i++) {
		silent[i] = dial_connect(porter_tcp_port(p));
		assert_true(silent[i] >= 0);
		if (say)
			assert_int_equal(write_full(silent[i], say, strlen(say)), 0);
	}
}

static void silent_go(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close_fd(silent[i]);
}

static void *admit_run(void *arg)
{
	struct porter *p = arg;
	struct channel *ch = NULL;

	if (porter_admit(p, &key, clock_ms() + 30000, &ch) < 0)
		return NULL;
	channel_free(ch);
	return p;
}

/*
 * Strangers connect while a porter waits: is a client with the right key admitted, and after how
 * long?
 */
static uint64_t among(unsigned count, const char *say)
{
	struct porter *p = listening();
	struct client c;
	pthread_t admit;
	void *admitted;

	assert_int_equal(pthread_create(&admit, NULL, admit_run, p), 0);
	silent_come(p, count, say);
	client_start(&c, porter_tcp_port(p), &key);
	pthread_join(admit, &admitted);
	worker_join(&c.worker);
	silent_go(count);
	porter_free(p);
	assert_non_null(admitted);
	assert_int_equal(c.rc, 0);
	return c.ms;
}

static void test_client_is_admitted_among_silent_connections(void **state)
{
	struct rlimit rl;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = rl.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
	assert_true(rl.rlim_cur > 1400);
	assert_true(among(1000, NULL) < 2000);
}

static void test_client_is_admitted_among_stalled_handshakes(void **state)
{
	(void)state;
	/* The beginning of a TLS record only. */
	assert_true(among(100, "\x16\x03\x01\x02") < 4000);
}

/* Without a free descriptor the porter does not spin, and it serves again when there is one. */
static int without_descriptors(void)
{
	struct rlimit rl = {.rlim_cur = 40, .rlim_max = 40};
	struct timespec before, after;
	struct porter *p = listening();
	struct channel *ch;
	int fill[64], n = 0;
	int64_t ms;
	int peer = dial_connect(porter_tcp_port(p));

	if (peer < 0 || setrlimit(RLIMIT_NOFILE, &rl) < 0)
		return 1;
	while (n < 64 && (fill[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	if (porter_admit(p, &key, clock_ms() + 1000, &ch) == 0)
		return 2;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	if (ms > 100)
		return 3;
	while (n > 0)
		close(fill[--n]);
	close(peer);
	good_client(p);
	porter_free(p);
	return 0;
}

static void test_porter_does_not_spin_without_descriptors(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		_exit(without_descriptors());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- lanes
 * ------------------------------------------------------------------------------------------ */

static struct porter_terms terms = {
	.key = {.secret = {7, 7, 7}, .session = 9},
	.peer = LANE_SOURCE,
	.lanes = LANES,
	.depth = DEPTH,
	.block_size = BLOCK,
};

static struct porter *open_to_lanes(void)
{
	struct porter *p = listening();

	assert_int_equal(porter_open_lanes(p, &terms), 0);
	return p;
}

static struct lane_hello hello(uint16_t lane, uint32_t epoch)
{
	struct lane_hello h = {
		.from = LANE_SOURCE,
		.session = terms.key.session,
		.lane = lane,
		.epoch = epoch,
		.depth = DEPTH,
		.block_size = BLOCK,
	};

	lane_hello_sign(&h, &terms.key);
	return h;
}

static int caller(struct porter *p, const struct lane_hello *h)
{
	uint8_t bytes[LANE_HELLO_SIZE];
	int fd = dial_connect(porter_tcp_port(p));

	lane_hello_encode(h, bytes);
	assert_int_equal(write_full(fd, bytes, sizeof bytes), 0);
	return fd;
}

/* A lane that waits gets no caller for a short time. */
static void nobody_for(struct porter *p, unsigned lane, uint32_t epoch)
{
	int never = eventfd(0, EFD_CLOEXEC);
	struct caller c;

	assert_int_equal(porter_wait(p, lane, epoch, never, clock_ms() + 100, &c), -1);
	assert_int_equal(failed()->code, OUT_CONNECT);
	close_fd(never);
}

static void somebody_for(struct porter *p, unsigned lane, uint32_t least, uint32_t epoch)
{
	int never = eventfd(0, EFD_CLOEXEC);
	struct caller c;

	assert_int_equal(porter_wait(p, lane, least, never, clock_ms() + 10000, &c), 0);
	assert_true(c.fd >= 0);
	assert_null(c.verbs);
	assert_int_equal(c.epoch, epoch);
	assert_int_equal(c.terms.depth, DEPTH);
	caller_drop(&c);
	close_fd(never);
}

static void test_caller_reaches_its_lane(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello one = hello(1, 0), zero = hello(0, 3);
	int a = caller(p, &one), b = caller(p, &zero);

	(void)state;
	somebody_for(p, 0, 0, 3);
	somebody_for(p, 1, 0, 0);
	nobody_for(p, 0, 0);
	close_fd(a);
	close_fd(b);
	porter_free(p);
}

static void refused(struct porter *p, struct lane_hello h, bool sign)
{
	int fd;

	if (sign)
		lane_hello_sign(&h, &terms.key);
	fd = caller(p, &h);
	assert_true(is_closed(fd, 5000));
	close_fd(fd);
}

static void test_callers_of_other_sessions_are_refused(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(0, 0);

	(void)state;
	h.mac[0] ^= 1;
	refused(p, h, false);
	h = hello(0, 0);
	h.mac[LANE_MAC - 1] ^= 0x80;
	refused(p, h, false);
	/* Signed for lane 0 but used for lane 1; and for another epoch. */
	h = hello(0, 0);
	h.lane = 1;
	refused(p, h, false);
	h = hello(0, 0);
	h.epoch = 1;
	refused(p, h, false);
	nobody_for(p, 0, 0);
	nobody_for(p, 1, 0);
	porter_free(p);
}

static void test_callers_with_other_terms_are_refused(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(LANES, 0);

	(void)state;
	refused(p, h, true);
	h = hello(0, 0);
	h.from = LANE_SINK;
	refused(p, h, true);
	h = hello(0, 0);
	h.accepting = 1;
	refused(p, h, true);
	h = hello(0, 0);
	h.session ^= 1;
	refused(p, h, true);
	h.session = 0;
	refused(p, h, true);
	h = hello(0, 0);
	h.depth++;
	refused(p, h, true);
	h = hello(0, 0);
	h.block_size *= 2;
	refused(p, h, true);
	h = hello(0, UINT32_MAX);
	refused(p, h, true);
	nobody_for(p, 0, 0);
	porter_free(p);
}

/* As a server with little memory left may. */
static void test_caller_may_state_a_smaller_depth(void **state)
{
	struct porter *p = open_to_lanes();
	int never = eventfd(0, EFD_CLOEXEC), fd;
	struct lane_hello h = hello(0, 0);
	struct caller c;

	(void)state;
	h.depth = 1;
	lane_hello_sign(&h, &terms.key);
	fd = caller(p, &h);
	assert_int_equal(porter_wait(p, 0, 0, never, clock_ms() + 10000, &c), 0);
	assert_int_equal(c.terms.depth, 1);
	caller_drop(&c);
	close_fd(fd);
	close_fd(never);
	porter_free(p);
}

static void test_hello_is_accepted_only_once(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(0, 5);
	int fd = caller(p, &h);

	(void)state;
	somebody_for(p, 0, 0, 5);
	refused(p, h, false);
	/* An earlier hello is refused as well. */
	h = hello(0, 4);
	refused(p, h, false);
	h = hello(0, 6);
	close_fd(fd);
	fd = caller(p, &h);
	somebody_for(p, 0, 6, 6);
	close_fd(fd);
	porter_free(p);
}

static void test_newest_caller_is_kept(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(0, 0);
	int old = caller(p, &h), new;

	(void)state;
	h = hello(0, 1);
	/* The first caller must arrive before the second. */
	poll(NULL, 0, 200);
	new = caller(p, &h);
	assert_true(is_closed(old, 5000));
	somebody_for(p, 0, 0, 1);
	close_fd(old);
	close_fd(new);
	porter_free(p);
}

static void test_caller_of_an_old_epoch_is_dropped(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(0, 2);
	int fd = caller(p, &h);

	(void)state;
	poll(NULL, 0, 200);
	nobody_for(p, 0, 3);
	assert_true(is_closed(fd, 5000));
	close_fd(fd);
	/* From then on the requested epoch is the minimum. */
	refused(p, h, false);
	porter_free(p);
}

static void test_waiting_lane_is_woken(void **state)
{
	struct porter *p = open_to_lanes();
	int wake = eventfd(1, EFD_CLOEXEC);
	struct caller c;

	(void)state;
	assert_int_equal(porter_wait(p, 0, 0, wake, clock_ms() + 10000, &c), 1);
	close_fd(wake);
	porter_free(p);
}

static void test_hello_in_pieces_is_accepted_beside_silent_callers(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(1, 0);
	uint8_t bytes[LANE_HELLO_SIZE];
	int fd;

	(void)state;
	silent_come(p, STRANGERS_OF_ONE + 50, NULL);
	fd = dial_connect(porter_tcp_port(p));
	lane_hello_encode(&h, bytes);
	for (unsigned i = 0; i < sizeof bytes; i += 8) {
		assert_int_equal(write_full(fd, bytes + i, 8), 0);
		poll(NULL, 0, 5);
	}
	somebody_for(p, 1, 0, 0);
	close_fd(fd);
	silent_go(STRANGERS_OF_ONE + 50);
	porter_free(p);
}

static void test_unclaimed_callers_are_closed(void **state)
{
	struct porter *p = open_to_lanes();
	struct lane_hello h = hello(0, 0);
	int fd = caller(p, &h);

	(void)state;
	poll(NULL, 0, 100);
	porter_free(p);
	assert_true(is_closed(fd, 1000));
	close_fd(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_addresses_share_one_port),
		cmocka_unit_test(test_port_moves_when_taken_at_another_address),
		cmocka_unit_test(test_taken_port_range_fails),
		cmocka_unit_test(test_porter_listens_on_all_addresses_by_default),
		cmocka_unit_test(test_right_key_is_admitted),
		cmocka_unit_test(test_admission_times_out),
		cmocka_unit_test(test_wrong_key_does_not_end_the_wait),
		cmocka_unit_test(test_other_protocols_are_disconnected),
		cmocka_unit_test(test_client_is_admitted_among_silent_connections),
		cmocka_unit_test(test_client_is_admitted_among_stalled_handshakes),
		cmocka_unit_test(test_porter_does_not_spin_without_descriptors),
		cmocka_unit_test(test_caller_reaches_its_lane),
		cmocka_unit_test(test_callers_of_other_sessions_are_refused),
		cmocka_unit_test(test_callers_with_other_terms_are_refused),
		cmocka_unit_test(test_caller_may_state_a_smaller_depth),
		cmocka_unit_test(test_hello_is_accepted_only_once),
		cmocka_unit_test(test_newest_caller_is_kept),
		cmocka_unit_test(test_caller_of_an_old_epoch_is_dropped),
		cmocka_unit_test(test_waiting_lane_is_woken),
		cmocka_unit_test(test_hello_in_pieces_is_accepted_beside_silent_callers),
		cmocka_unit_test(test_unclaimed_callers_are_closed),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("porter", tests, NULL, NULL);
}
