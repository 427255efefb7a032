/* SPDX-License-Identifier: Apache-2.0 */
/* The limits on connections that have not authenticated. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail

#include "base/clock.h"
#include "base/io.h"
#include "lane/tcp/tcp_connect.h"
#include "session/connect/strangers.h"

static unsigned port;

static union address loopback(unsigned last, unsigned at)
{
	return (union address){.in4 = {.sin_family = AF_INET,
				       .sin_port = htons((uint16_t)at),
				       .sin_addr = {htonl(0x7f000000 | last)}}};
}

static int listen_here(void)
{
	union address at = loopback(1, 0);
	int fd = tcp_listen(&at, 0, 0, 0, &port);

	assert_true(fd >= 0);
	return fd;
}

/* Connect from 127.0.0.last. */
static int come(unsigned last)
{
	union address from = loopback(last, 0), to = loopback(1, port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, &from.sa, sizeof from.in4) == 0 &&
	    connect(fd, &to.sa, sizeof to.in4) == 0)
		return fd;
	close_fd(fd);
	return -1;
}

static void let_in(struct strangers *s, int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	assert_int_equal(poll(&p, 1, 10000), 1);
	strangers_accept(s, listener);
}

/* True when the other end has closed it. */
static bool is_out(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char byte;

	return poll(&p, 1, 0) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void test_oldest_of_the_busiest_address_is_evicted(void **state)
{
	/* The last byte of each address, and which of the connections remain after that. */
	static const struct {
		unsigned last;
		int gone;
	} steps[] = {{2, -1}, {3, -1}, {4, -1}, {3, -1}, {3, -1}, {5, 1},
		     {5, 3},  {5, 5},  {2, 0},  {6, 6},  {7, 2},  {8, 4}};
	enum { STEPS = sizeof steps / sizeof *steps };
	static struct strangers s;
	bool out[STEPS] = {false};
	int listener = listen_here(), fds[STEPS];

	(void)state;
	strangers_init(&s, STRANGERS_OF_ONE);
	s.most = 5;
	for (int i = 0; i < STEPS; i++) {
		fds[i] = come(steps[i].last);
		assert_true(fds[i] >= 0);
		let_in(&s, listener);
		if (steps[i].gone >= 0)
			out[steps[i].gone] = true;
		for (int j = 0; j <= i; j++)
			assert_int_equal(is_out(fds[j]), out[j]);
	}
	strangers_close(&s);
	assert_int_equal(s.count, 0);
	for (int i = 0; i < STEPS; i++)
		close_fd(fds[i]);
	close_fd(listener);
}

static void test_closed_strangers_do_not_count(void **state)
{
	static struct strangers s;
	int listener = listen_here(), fds[4];

	(void)state;
	strangers_init(&s, STRANGERS_OF_ONE);
	for (unsigned i = 0; i < 4; i++) {
		fds[i] = come(2 + i % 2);
		let_in(&s, listener);
	}
	assert_int_equal(s.count, 4);
	stranger_close(&s, 1);
	assert_int_equal(s.count, 3);
	assert_int_equal(s.list[0].address_count, 2);
	assert_int_equal(s.list[1].address_count, 2);
	assert_int_equal(s.list[2].address_count, 1);
	strangers_close(&s);
	for (unsigned i = 0; i < 4; i++)
		close_fd(fds[i]);
	close_fd(listener);
}

/* Runs in a process of its own: the number of the check that failed, 0: none. */
static int without_descriptors(void)
{
	struct rlimit files = {.rlim_cur = 64, .rlim_max = 64};
	static struct strangers s;
	int listener = listen_here(), first, late, extra = -1;
	union address to = loopback(1, port);
	struct pollfd p = {.fd = listener, .events = POLLIN};

	strangers_init(&s, STRANGERS_OF_ONE);
	first = come(2);
	late = socket(AF_INET, SOCK_STREAM, 0);
	if (poll(&p, 1, 10000) != 1)
		return 1;
	strangers_accept(&s, listener);
	if (s.count != 1 || setrlimit(RLIMIT_NOFILE, &files))
		return 2;
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	if (errno != EMFILE)
		return 3;
	/* No connection waits for a descriptor, so none is evicted. */
	strangers_accept(&s, listener);
	if (s.count != 1 || is_out(first) || !strangers_accepting(&s) || s.warned)
		return 4;
	/* A connection waits for a descriptor. */
	extra = connect(late, &to.sa, sizeof to.in4);
	if (extra || poll(&p, 1, 10000) != 1)
		return 5;
	strangers_accept(&s, listener);
	if (s.count != 1 || !is_out(first) || is_out(late))
		return 6;
	/* The first stranger may have been the peer, which explains a failed wait. */
	if (!s.warned)
		return 7;
	return 0;
}

static void test_stranger_makes_room_when_descriptors_run_out(void **state)
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

static void test_descriptor_limit_bounds_the_strangers(void **state)
{
	struct rlimit files, few;
	static struct strangers s;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	few = files;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	strangers_init(&s, STRANGERS_OF_ONE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_int_equal(s.most, 32);
}

static void test_client_hello_in_pieces_is_recognized(void **state)
{
	static const uint8_t record[5 + 300] = {0x16, 3, 1, 1, 44};
	static const size_t pieces[] = {1, 3, 1, 100, 199, 1};
	static struct strangers s;
	int listener = listen_here(), fd = come(2);
	size_t at = 0;

	(void)state;
	strangers_init(&s, STRANGERS_OF_ONE);
	let_in(&s, listener);
	for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		struct pollfd p = {.fd = s.list[0].fd, .events = POLLIN | POLLRDHUP};

		assert_int_equal(stranger_hello(&s, 0), 0);
		/* These bytes were examined already: they do not wake the porter again. */
		assert_int_equal(poll(&p, 1, 0), 0);
		assert_int_equal(write_full(fd, record + at, pieces[i]), 0);
		at += pieces[i];
		poll(&p, 1, i == 0 || i == 2 || i == 5 ? 10000 : 20);
	}
	assert_int_equal(at, sizeof record);
	assert_int_equal(stranger_hello(&s, 0), 1);
	strangers_close(&s);
	close_fd(fd);
	close_fd(listener);
}

static void test_other_bytes_are_not_a_client_hello(void **state)
{
	static const struct {
		uint8_t bytes[8];
		size_t len;
		bool ends;
	} cases[] = {
		{"GET", 3, false},
		{{0x16, 3, 1, 0xff, 0xff}, 5, false},
		{{0x16, 3, 1, 8}, 5, true},
		{{0x16, 3}, 2, true},
		{"", 0, true},
	};
	int listener = listen_here();

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		static struct strangers s;
		struct pollfd p;
		int fd = come(2);

		strangers_init(&s, STRANGERS_OF_ONE);
		let_in(&s, listener);
		assert_int_equal(write_full(fd, cases[i].bytes, cases[i].len), 0);
		if (cases[i].ends)
			shutdown(fd, SHUT_WR);
		p = (struct pollfd){.fd = s.list[0].fd,
				    .events = cases[i].ends ? POLLRDHUP : POLLIN};
		assert_int_equal(poll(&p, 1, 10000), 1);
		assert_int_equal(stranger_hello(&s, 0), -1);
		strangers_close(&s);
		close_fd(fd);
	}
	close_fd(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_oldest_of_the_busiest_address_is_evicted),
		cmocka_unit_test(test_closed_strangers_do_not_count),
		cmocka_unit_test(test_stranger_makes_room_when_descriptors_run_out),
		cmocka_unit_test(test_descriptor_limit_bounds_the_strangers),
		cmocka_unit_test(test_client_hello_in_pieces_is_recognized),
		cmocka_unit_test(test_other_bytes_are_not_a_client_hello),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
