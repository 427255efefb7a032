/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/digest.h"
#include "copy/io/floor.h"
#include "copy/io/sizes.h"

enum { PIPE_SIZE = 1 << 20, PAGE = 4096, DRAIN_PAUSE_MAX_MS = 16 };

void stream_widen(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && fcntl(fd, F_GETPIPE_SZ) < PIPE_SIZE)
		fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE);
}

static bool is_dev_null(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

void outlet_of_file(int fd, const char *name, struct outlet *o)
{
	*o = (struct outlet){.fd = fd, .name = name, .seekable = true};
}

int outlet_of(int fd, const char *name, struct outlet *o)
{
	struct sizes_cache sizes = {.known = false};
	int flags = fcntl(fd, F_GETFL);
	struct stat st;
	off_t at;

	*o = (struct outlet){.fd = fd, .name = name};
	stream_widen(fd);
	if (flags < 0 || fstat(fd, &st))
		return fail("stat %s: %m", name);
	if ((flags & O_APPEND) ||
	    (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode) && !is_dev_null(&st)))
		return 0;
	at = lseek(fd, 0, SEEK_CUR);
	if (at < 0)
		return fail("seek in %s: %m", name);
	o->seekable = true;
	o->base = (uint64_t)at;
	o->fresh =
		S_ISREG(st.st_mode) && at >= st.st_size && sizes_of(&sizes, fd, &st) == SIZES_TRUE;
	return 0;
}

/* A call failed with errno.  True: it can be repeated now. */
static bool wait_to_retry(int fd, short events, const struct stopper *s)
{
	struct pollfd p = {.fd = fd, .events = events};

	if (errno == EAGAIN)
		poll(&p, 1, -1);
	else if (errno != EINTR)
		return false;
	if (!s->stop || !s->stop(s->ctx))
		return true;
	errno = ECANCELED;
	return false;
}

static int write_rest(const struct outlet *o, uint64_t pos, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		size_t most = o->passed && len > PASS_AT_MOST ? PASS_AT_MOST : len;
		ssize_t n = o->seekable ? pwrite(o->fd, bytes, most, (off_t)(o->base + pos))
					: write(o->fd, bytes, most);

		if (n == 0)
			errno = EIO;
		if (n == 0 || (n < 0 && !wait_to_retry(o->fd, POLLOUT, &o->stopper)))
			return fail("write %s: %m", o->name);
		if (n < 0)
			continue;
		if (o->passed)
			atomic_fetch_add_explicit(o->passed, (uint64_t)n, memory_order_relaxed);
		bytes += n;
		pos += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_now(const struct outlet *o, uint64_t pos, const uint8_t *bytes, size_t len)
{
	ssize_t written = direct_write(o->direct, bytes, len, o->base + pos);

	if (written < 0)
		return fail("write %s: %m", o->name);
	pos += (uint64_t)written;
	bytes += written;
	len -= (size_t)written;
	if (write_rest(o, pos, bytes, len))
		return -1;
	if (len > 0 && o->writeback &&
	    writeback_after_write(o->writeback, o->fd, o->base + pos, len))
		return fail("write %s: %m", o->name);
	return 0;
}

static int write_at(const struct outlet *o, uint64_t pos, const uint8_t *bytes, size_t len)
{
	int ret;

	if (floor_begin(o->fd, len))
		return floor_fail(o->name);
	ret = write_now(o, pos, bytes, len);
	floor_end(len);
	return ret;
}

/* Leaves out whole pages of zeros, and writes the bytes between them with one call each. */
static int write_sparse(const struct outlet *o, uint64_t pos, const uint8_t *bytes, size_t len)
{
	size_t from = 0, at = 0;

	while (at < len) {
		size_t n = PAGE - (size_t)((pos + at) % PAGE);

		if (n > len - at)
			n = len - at;
		if (bytes_are_zero(bytes + at, n)) {
			if (at > from && write_at(o, pos + from, bytes + from, at - from))
				return -1;
			from = at + n;
		}
		at += n;
	}
	return len > from ? write_at(o, pos + from, bytes + from, len - from) : 0;
}

int outlet_write(const struct outlet *o, uint64_t pos, const void *bytes, size_t len)
{
	if (o->sparse && o->fresh && o->seekable)
		return write_sparse(o, pos, bytes, len);
	return write_at(o, pos, bytes, len);
}

static bool punch_hole(const struct outlet *o, uint64_t pos, uint64_t len)
{
	return fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(o->base + pos),
			 (off_t)len) == 0;
}

int outlet_write_zeros(const struct outlet *o, uint64_t pos, uint64_t len)
{
	static const uint8_t zeros[64 << 10];

	if (o->fresh || (o->sized && punch_hole(o, pos, len)))
		return 0;
	while (len > 0) {
		size_t n = len < sizeof zeros ? (size_t)len : sizeof zeros;

		if (write_at(o, pos, zeros, n))
			return -1;
		pos += n;
		len -= n;
		if (o->stopper.stop && o->stopper.stop(o->stopper.ctx))
			return fail("write %s: cancelled", o->name);
	}
	return 0;
}

uint64_t outlet_skip_hole(int fd, uint64_t from, uint64_t to)
{
	off_t data = lseek(fd, (off_t)from, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? to : from;
	return (uint64_t)data < to ? (uint64_t)data : to;
}

int outlet_sync(int fd)
{
	struct stat st;

	if (fsync(fd) == 0)
		return 0;
	if ((errno != EINVAL && errno != ENOTSUP) || fstat(fd, &st))
		return -1;
	if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISCHR(st.st_mode))
		return 0;
	errno = EINVAL;
	return -1;
}

/* A hole at the end of a fresh file does not exist yet. */
static int extend_fresh(const struct outlet *o, uint64_t size)
{
	struct stat st;

	if (!o->fresh)
		return 0;
	if (fstat(o->fd, &st) ||
	    ((uint64_t)st.st_size < o->base + size && ftruncate(o->fd, (off_t)(o->base + size))))
		return fail("write %s: %m", o->name);
	return 0;
}

int outlet_seek_to_end(const struct outlet *o, uint64_t size)
{
	if (extend_fresh(o, size))
		return -1;
	if (!o->seekable || lseek(o->fd, (off_t)(o->base + size), SEEK_SET) >= 0)
		return 0;
	return fail("seek in %s: %m", o->name);
}

int outlet_drain(const struct outlet *o)
{
	const struct stopper *s = &o->stopper;
	struct pollfd p = {.fd = o->fd};
	int pause_ms = 1;

	while (count_readable(o->fd) > 0) {
		/* POLLERR: nobody can read it any more, unless somebody did before he ended. */
		bool deserted = poll(&p, 1, pause_ms) > 0, stopped = s->stop && s->stop(s->ctx);

		if (stopped || (deserted && count_readable(o->fd) > 0)) {
			errno = stopped ? ECANCELED : EPIPE;
			return fail("write %s: %m", o->name);
		}
		if (pause_ms < DRAIN_PAUSE_MAX_MS)
			pause_ms *= 2;
	}
	return 0;
}

ssize_t stream_gather(int fd, void *buf, size_t room, const struct stopper *s, int *after)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t until = 0;
	size_t used = 0;

	*after = 0;
	while (used < room) {
		ssize_t n;

		/* After the first bytes, read only what is available within GATHER_MS. */
		if (used > 0 && poll(&p, 1, clock_left(until)) <= 0)
			break;
		n = read(fd, (char *)buf + used, room - used);
		if (n < 0 && wait_to_retry(fd, POLLIN, s))
			continue;
		if (n < 0 && used == 0)
			return -1;
		if (n <= 0) {
			*after = n < 0 ? errno : GATHER_END;
			break;
		}
		if (used == 0)
			until = clock_ms() + GATHER_MS;
		used += (size_t)n;
	}
	return (ssize_t)used;
}
