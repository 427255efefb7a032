/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/stored.h"

/* A descriptor that is read back, from the disk if possible. */
struct readback {
	struct sink_lane *lane;
	int fd, flags;
	const char *shown;
	bool direct;
};

/*
 * Drops the file from the page cache, and reads past the cache if the file system can.  Some file
 * systems report only in read(2) that they cannot.
 */
static int begin_readback(struct readback *b)
{
	if (sink_alloc_scratch(b->lane))
		return -1;
	if (fdatasync(b->fd) && errno != EINVAL)
		return fail("fsync %s: %m", b->shown);
	posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
	b->flags = fcntl(b->fd, F_GETFL);
	b->direct = b->flags >= 0 && fcntl(b->fd, F_SETFL, b->flags | O_DIRECT) == 0;
	return 0;
}

static void end_readback(struct readback *b)
{
	if (b->direct)
		fcntl(b->fd, F_SETFL, b->flags);
	b->direct = false;
}

/* Reads len bytes (at most a cell) at pos, a multiple of CELL.  Direct reads need whole pages. */
static int read_back_cell(struct readback *b, uint64_t pos, size_t len)
{
	size_t want = b->direct ? (len + LANE_PAGE - 1) / LANE_PAGE * LANE_PAGE : len;
	ssize_t n;

	if (copy_interrupted(b->lane->sink->copy))
		return -1;
	n = pread_full(b->fd, b->lane->scratch, want, (off_t)pos);
	/* Also after a direct read that ended at an odd offset. */
	if (b->direct && (n < 0 ? errno == EINVAL : (size_t)n < len)) {
		end_readback(b);
		n = pread_full(b->fd, b->lane->scratch, len, (off_t)pos);
	}
	if (n < 0)
		return fail("read back %s: %m", b->shown);
	if ((size_t)n < len)
		return stored_fail(b->shown, STORED_SHORT);
	return 0;
}

static int check_stored_length(const struct readback *b, uint64_t size)
{
	struct stat st;

	if (fstat(b->fd, &st))
		return fail("stat %s: %m", b->shown);
	if ((uint64_t)st.st_size >= size)
		return 0;
	return stored_fail(b->shown, STORED_SHORT);
}

static int fail_differs(const struct readback *b)
{
	return fail_as(OUT_INTEGRITY, "%s: the stored data differs from the received data",
		       b->shown);
}

int sink_verify_small(struct sink_lane *l, int fd, const char *shown, const uint8_t *bytes,
		      size_t len)
{
	struct readback b = {.lane = l, .fd = fd, .shown = shown};
	int ret = begin_readback(&b);

	for (size_t at = 0; ret == 0 && at < len; at += CELL) {
		size_t n = len - at < CELL ? len - at : CELL;

		ret = read_back_cell(&b, at, n);
		if (ret == 0 && memcmp(l->scratch, bytes + at, n) != 0)
			ret = fail_differs(&b);
	}
	end_readback(&b);
	return ret;
}

int sink_verify(struct sink_lane *l, int fd, const char *shown, uint64_t base, uint64_t size,
		const uint64_t nonzero_sum[2])
{
	struct readback b = {.lane = l, .fd = fd, .shown = shown};
	uint64_t sum[2] = {0, 0}, cell[2];
	int ret = begin_readback(&b);

	if (ret == 0)
		ret = check_stored_length(&b, base + size);
	for (uint64_t pos = 0; ret == 0 && pos < size; pos += CELL) {
		size_t n;

		/* A hole reads as zeros, and cells of zeros add nothing to nonzero_sum. */
		pos = (outlet_skip_hole(fd, base + pos, base + size) - base) / CELL * CELL;
		n = size - pos < CELL ? (size_t)(size - pos) : CELL;
		ret = read_back_cell(&b, base + pos, n);
		if (ret || bytes_are_zero(l->scratch, n))
			continue;
		cell_hash_of(pos, l->scratch, n, cell);
		sum_add(sum, cell);
	}
	end_readback(&b);
	if (ret == 0 && (sum[0] != nonzero_sum[0] || sum[1] != nonzero_sum[1]))
		ret = fail_differs(&b);
	return ret;
}
