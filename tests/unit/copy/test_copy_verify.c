/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/io.h"
#include "copy/sink/sink_impl.h"

/* What --verify detects when it reads back stored data, on a disk that loses writes. */

enum { SIZE = 3 * CELL + 1234 };

struct bench {
	struct copy *copy;
	struct sink sink;
	struct sink_lane lane;
	uint8_t bytes[SIZE];
	uint64_t nonzero_sum[2];
	int fd;
};

/* A cell of data, a cell that is a hole, one that contains zeros, and the rest, data. */
static int make(void **state)
{
	struct bench *b = calloc(1, sizeof *b);
	struct digest *d = digest_new();
	uint64_t sum[2];

	*state = b;
	if (folder_enter(state) || copy_new(&sink_role, &b->copy))
		return -1;
	b->sink.copy = b->copy;
	b->lane.sink = &b->sink;
	for (unsigned i = 0; i < CELL; i++)
		b->bytes[i] = (uint8_t)(i * 7 + i / 251 + 1);
	memset(b->bytes + 3 * CELL, 'x', SIZE - 3 * CELL);
	digest_track_nonzero(d);
	/* In pieces, and in one. */
	digest_add(d, 0, b->bytes, 1000);
	digest_add(d, 1000, b->bytes + 1000, CELL - 1000);
	digest_add(d, 2 * CELL, b->bytes + 2 * CELL, SIZE - 2 * CELL);
	digest_sum(d, sum);
	digest_nonzero_sum(d, b->nonzero_sum);
	digest_free(d);
	b->fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return b->fd < 0 || ftruncate(b->fd, SIZE) || pwrite_full(b->fd, b->bytes, CELL, 0) ||
			       pwrite_full(b->fd, b->bytes + 2 * CELL, SIZE - 2 * CELL, 2 * CELL)
		       ? -1
		       : 0;
}

static int clear(void **state)
{
	struct bench *b = *state;

	close(b->fd);
	copy_free(b->copy);
	free(b->lane.scratch);
	free(b);
	return folder_leave(state);
}

static int verify(struct bench *b)
{
	return sink_verify(&b->lane, b->fd, "file", 0, SIZE, b->nonzero_sum);
}

static void assert_differs(int ret, const char *part)
{
	assert_int_equal(ret, -1);
	assert_int_equal(failed()->code, OUT_INTEGRITY);
	assert_non_null(strstr(failed()->text, part));
}

static void unchanged_file_passes(void **state)
{
	struct bench *b = *state;
	int flags = fcntl(b->fd, F_GETFL);

	assert_int_equal(verify(b), 0);
	assert_int_equal(sink_verify_small(&b->lane, b->fd, "file", b->bytes, SIZE), 0);
	assert_int_equal(sink_verify_small(&b->lane, b->fd, "file", NULL, 0), 0);
	/* Later writes find the descriptor flags unchanged. */
	assert_int_equal(fcntl(b->fd, F_GETFL), flags);
}

static void changed_byte_is_detected(void **state)
{
	static const off_t at[] = {0, CELL - 1, CELL + 5, 2 * CELL, SIZE - 1};
	struct bench *b = *state;

	for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
		uint8_t other = b->bytes[at[i]] ^ 1;

		assert_int_equal(pwrite_full(b->fd, &other, 1, at[i]), 0);
		assert_differs(verify(b), "the stored data differs");
		assert_differs(sink_verify_small(&b->lane, b->fd, "file", b->bytes, SIZE),
			       "the stored data differs");
		assert_int_equal(pwrite_full(b->fd, &b->bytes[at[i]], 1, at[i]), 0);
		assert_int_equal(verify(b), 0);
	}
}

static void lost_cell_is_detected(void **state)
{
	struct bench *b = *state;
	void *zeros = calloc(1, CELL);

	assert_int_equal(pwrite_full(b->fd, zeros, CELL, 0), 0);
	free(zeros);
	assert_differs(verify(b), "the stored data differs");
}

static void lost_end_is_detected(void **state)
{
	struct bench *b = *state;

	assert_int_equal(ftruncate(b->fd, SIZE - 1), 0);
	assert_differs(verify(b), "shorter");
	assert_differs(sink_verify_small(&b->lane, b->fd, "file", b->bytes, SIZE), "shorter");
}

#define verify_test(f) cmocka_unit_test_setup_teardown(f, make, clear)

int main(void)
{
	const struct CMUnitTest tests[] = {
		verify_test(unchanged_file_passes),
		verify_test(changed_byte_is_detected),
		verify_test(lost_cell_is_detected),
		verify_test(lost_end_is_detected),
	};

	return cmocka_run_group_tests_name("copy_verify", tests, NULL, NULL);
}
