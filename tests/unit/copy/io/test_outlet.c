/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/worker.h"
#include "copy/io/outlet.h"

enum { BLOCK = 256 << 10, PIPE_SIZE = 1 << 20, BIT = 1000, LATE_MS = 500 };

static const struct stopper nobody = {0};
static uint8_t room[BLOCK];

/* A pipe, enlarged, that contains this many bytes from small writes. */
static void make_pipe(int fds[2], size_t filled)
{
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	stream_widen(fds[0]);
	for (size_t at = 0; at < filled; at += BIT) {
		size_t n = filled - at < BIT ? filled - at : BIT;

		memset(room, (int)(at / BIT), n);
		assert_int_equal(write(fds[1], room, n), (ssize_t)n);
	}
}

static void test_pipe_is_enlarged(void **state)
{
	int fds[2];
	struct outlet o;

	(void)state;
	make_pipe(fds, 0);
	assert_int_equal(fcntl(fds[1], F_GETPIPE_SZ), PIPE_SIZE);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	outlet_of(fds[1], "a pipe", &o);
	assert_int_equal(fcntl(fds[0], F_GETPIPE_SZ), PIPE_SIZE);
	assert_false(o.seekable);
	close(fds[0]);
	close(fds[1]);
}

/* A larger pipe keeps its size; an unprivileged user gets the same size. */
static void test_larger_pipe_keeps_its_size(void **state)
{
	int fds[2], size;

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	if (fcntl(fds[0], F_SETPIPE_SZ, 2 * PIPE_SIZE) < 0)
		assert_int_equal(errno, EPERM);
	size = fcntl(fds[0], F_GETPIPE_SZ);
	stream_widen(fds[0]);
	assert_true(fcntl(fds[0], F_GETPIPE_SZ) >= size);
	close(fds[0]);
	close(fds[1]);
}

/* However small the writes are. */
static void test_fast_producer_fills_blocks(void **state)
{
	int fds[2], after;

	(void)state;
	make_pipe(fds, 3 * BLOCK + 77);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(stream_gather(fds[0], room, BLOCK, &nobody, &after), BLOCK);
		assert_int_equal(room[0], (uint8_t)(i * BLOCK / BIT));
		assert_int_equal(after, 0);
	}
	close(fds[1]);
	assert_int_equal(stream_gather(fds[0], room, BLOCK, &nobody, &after), 77);
	assert_int_equal(after, GATHER_END);
	assert_int_equal(stream_gather(fds[0], room, BLOCK, &nobody, &after), 0);
	close(fds[0]);
}

/* Its bytes are in the pipe, and nothing follows for a while. */
static void test_slow_producer_is_not_delayed(void **state)
{
	int fds[2], after;
	uint64_t start;

	(void)state;
	make_pipe(fds, 77);
	start = clock_ms();
	assert_int_equal(stream_gather(fds[0], room, BLOCK, &nobody, &after), 77);
	assert_true(clock_ms() - start < LATE_MS);
	assert_int_equal(after, 0);
	close(fds[0]);
	close(fds[1]);
}

static void *write_bits(void *fd)
{
	for (int i = 0; i < 50; i++) {
		if (write(*(int *)fd, "bit", 3) != 3)
			break;
		usleep(100);
	}
	return NULL;
}

/*
 * A producer with little more than a millisecond between writes: sooner or later several writes are
 * read together.
 */
static void test_writes_within_a_millisecond_are_read_together(void **state)
{
	int fds[2], after = 0, reads = 0;
	size_t all = 0;
	struct worker w;

	(void)state;
	make_pipe(fds, 0);
	assert_int_equal(worker_start(&w, "writer", write_bits, &fds[1]), 0);
	while (all < 150) {
		ssize_t n = stream_gather(fds[0], room, BLOCK, &nobody, &after);

		assert_true(n > 0);
		all += (size_t)n;
		reads++;
	}
	worker_join(&w);
	assert_true(reads < 50);
	close(fds[0]);
	close(fds[1]);
}

/* ---- files ----------------------------------------------------------------------------- */

static void test_whole_pages_bypass_the_cache(void **state)
{
	enum { SIZE = BLOCK + 4096 + 100 };
	uint8_t *bytes = aligned_alloc(DIRECT_ALIGN, 2 * BLOCK), *back = malloc(SIZE);
	char name[] = "/var/tmp/sluice-outlet-XXXXXX";
	int fd = mkstemp(name);
	struct outlet o;

	(void)state;
	assert_true(fd >= 0 && bytes && back);
	unlink(name);
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	outlet_of(fd, "a file", &o);
	o.direct = direct_open(fd, O_WRONLY);
	/* The end first, then what precedes it. */
	assert_int_equal(outlet_write(&o, BLOCK, bytes + BLOCK, SIZE - BLOCK), 0);
	assert_int_equal(outlet_write(&o, 0, bytes, BLOCK), 0);
	assert_int_equal(pread(fd, back, SIZE, 0), SIZE);
	assert_memory_equal(back, bytes, SIZE);
	direct_close(o.direct);
	close(fd);
	free(bytes);
	free(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipe_is_enlarged),
		cmocka_unit_test(test_larger_pipe_keeps_its_size),
		cmocka_unit_test(test_fast_producer_fills_blocks),
		cmocka_unit_test(test_slow_producer_is_not_delayed),
		cmocka_unit_test(test_writes_within_a_millisecond_are_read_together),
		cmocka_unit_test(test_whole_pages_bypass_the_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
