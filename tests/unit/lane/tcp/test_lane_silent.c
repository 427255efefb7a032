/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A host that vanishes silently, and one that only seems to have vanished. The test runs in a
 * network namespace of its own, whose loopback device goes down during the transfer.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* cmocka defines a macro of this name; base/fail.h declares a function */
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include "base/backoff.h"
#include "base/clock.h"
#include "base/io.h"
#include "lane_loopback.h"

enum { LONG_MS = 60000, TIMEOUT_MS = 1000, NOTICE_MS = 20000, MIDDLE = 65536, MOST_FDS = 64 };

static bool alone; /* in a network namespace of its own */
static void *state;
static struct pair p;
static struct job from, to;
static atomic_bool gate;

static int set_loopback(bool up)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP : 0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = ioctl(fd, SIOCSIFFLAGS, &r);

	close_fd(fd);
	return rc;
}

/* size: of each block; NULL: block_size */
static void begin(unsigned blocks, uint32_t block_size, bool gated,
		  uint32_t (*size)(unsigned i, uint32_t block_size))
{
	const struct plan plan = {.timeout_ms = TIMEOUT_MS, .alone = true};

	atomic_store(&gate, !gated);
	from = (struct job){.pair = &p, .blocks = blocks, .size = size};
	to = (struct job){.pair = &p, .size = size, .gate = &gate};
	assert_int_equal(loopback_backend.setup(&state), 0);
	assert_int_equal(pair_open(&p, &loopback_backend, state, 0, 32, block_size, &plan), 0);
	job_start(&to, sink_job);
	job_start(&from, source_job);
}

static void finish(void)
{
	pair_end(&p);
	if (!job_join(&from, LONG_MS) || !job_join(&to, LONG_MS))
		abort();
	pair_close(&p);
	loopback_backend.teardown(state);
}

static bool asks_for_wire(struct pair_side *s)
{
	bool asks;

	pthread_mutex_lock(&p.lock);
	asks = s->wants > 1;
	pthread_mutex_unlock(&p.lock);
	return asks;
}

/* Does this end ask for another wire in time? */
static bool notices(struct pair_side *s)
{
	uint64_t end = clock_ms() + NOTICE_MS;
	bool asks = false;

	while (!asks && clock_ms() < end) {
		sleep_ms(10);
		asks = asks_for_wire(s);
	}
	return asks;
}

static void test_source_detects_a_vanished_host(void **arg)
{
	bool noticed;

	(void)arg;
	if (!alone)
		skip();
	begin(1000000, MIDDLE, false, NULL);
	wait_count(&to.done, 20, LONG_MS);
	set_loopback(false);
	noticed = notices(&p.source);
	set_loopback(true);
	finish();
	assert_true(noticed);
}

static void test_idle_sink_detects_a_vanished_host(void **arg)
{
	bool came, noticed;

	(void)arg;
	if (!alone)
		skip();
	begin(3, MIDDLE, false, NULL);
	came = wait_count(&to.done, 3, LONG_MS);
	sleep_ms(100);
	set_loopback(false);
	noticed = notices(&p.sink);
	set_loopback(true);
	finish();
	assert_true(came);
	assert_true(noticed);
}

/* Limit the receive buffers of this namespace to this; false where that is not possible. */
static bool set_room(const char *bytes)
{
	int fd = open("/proc/sys/net/ipv4/tcp_rmem", O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write_full(fd, bytes, strlen(bytes)) == 0;

	close_fd(fd);
	return done;
}

/* Several times the timeout, with more sent than the sink's host buffers. */
static void test_resting_sink_is_not_declared_dead(void **arg)
{
	struct lane_stats s;
	bool left;

	(void)arg;
	if (!alone || !set_room("4096 65536 65536"))
		skip();
	begin(8, LANE_BLOCK_MAX, true, NULL);
	sleep_ms(5 * TIMEOUT_MS);
	atomic_store(&gate, true);
	left = job_join(&from, LONG_MS);
	lane_stats(p.source.lane, &s);
	pair_end(&p);
	if (!left || !job_join(&to, LONG_MS))
		abort();
	pair_close(&p);
	loopback_backend.teardown(state);
	assert_int_equal(from.rc, 0);
	assert_int_equal(to.done, 8);
	assert_string_equal(to.wrong, "");
	assert_int_equal(s.epochs, 1);
}

static atomic_bool heard_long_ago, routeless;
static uint64_t routeless_since_ms;

int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *len);

/* Notes what TCP says; if routeless, says the same as on a host that lost its route when the last
 * acknowledgement came, at the end of a burst. */
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *len)
{
	int rc = __real_getsockopt(fd, level, option, value, len);
	struct tcp_info *info = value;

	if (level != IPPROTO_TCP || option != TCP_INFO)
		return rc;
	if (info->tcpi_unacked > 0 && info->tcpi_last_ack_recv >= TIMEOUT_MS)
		atomic_store(&heard_long_ago, true);
	if (atomic_load(&routeless)) {
		info->tcpi_unacked = 1;
		info->tcpi_probes = 0;
		info->tcpi_rto = 208000;
		info->tcpi_last_ack_recv = (uint32_t)(clock_ms() - routeless_since_ms);
		info->tcpi_last_data_sent = info->tcpi_last_ack_recv;
	}
	return rc;
}

/* From the second block on, the sink's host drops what it has promised to take, and the source's
 * pauses between retransmissions get longer than the timeout. */
static uint32_t drop_after_first_block(unsigned i, uint32_t block_size)
{
	const int least = 1;

	for (int fd = 3; i == 1 && fd < MOST_FDS; fd++) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
		backoff_bound(fd, 8 * LONG_MS);
	}
	return i == 0 ? 1 : block_size;
}

static bool is_linux_before(int major, int minor)
{
	struct utsname u;
	int ma, mi;

	return uname(&u) != 0 || sscanf(u.release, "%d.%d", &ma, &mi) != 2 || ma < major ||
	       (ma == major && mi < minor);
}

static void test_host_that_drops_data_is_not_declared_dead(void **arg)
{
	struct lane_stats s;
	bool asks;

	(void)arg;
	/* Before Linux 6.6 a host does not answer what it drops. */
	if (!alone || is_linux_before(6, 6) || !set_room("4096 1048576 1048576"))
		skip();
	atomic_store(&heard_long_ago, false);
	begin(8, LANE_BLOCK_MAX, true, drop_after_first_block);
	sleep_ms(5 * TIMEOUT_MS);
	asks = asks_for_wire(&p.source);
	lane_stats(p.source.lane, &s);
	atomic_store(&gate, true);
	finish();
	assert_true(atomic_load(&heard_long_ago));
	assert_false(asks);
	assert_int_equal(s.epochs, 1);
}

static void test_source_without_a_route_replaces_its_wire(void **arg)
{
	bool noticed;

	(void)arg;
	if (!alone || !set_room("4096 65536 65536"))
		skip();
	begin(8, LANE_BLOCK_MAX, true, NULL);
	sleep_ms(TIMEOUT_MS);
	routeless_since_ms = clock_ms();
	atomic_store(&routeless, true);
	noticed = notices(&p.source);
	atomic_store(&routeless, false);
	atomic_store(&gate, true);
	finish();
	assert_true(noticed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_source_detects_a_vanished_host),
		cmocka_unit_test(test_idle_sink_detects_a_vanished_host),
		cmocka_unit_test(test_resting_sink_is_not_declared_dead),
		cmocka_unit_test(test_host_that_drops_data_is_not_declared_dead),
		cmocka_unit_test(test_source_without_a_route_replaces_its_wire),
	};

	alone = (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) &&
		set_loopback(true) == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
