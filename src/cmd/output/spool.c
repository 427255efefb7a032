/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

/* A pipe that polls writable takes WRITE_MAX without waiting. */
enum { KEPT_MAX = 1 << 20, WRITE_MAX = 4096 };

static struct {
	FILE *file;
	int fd;
	int error; /* errno of the first write that failed: nothing more is written */
	char kept[KEPT_MAX];
	size_t start, end; /* of kept */
	int beyond; /* a file with what found no room in it, -1: none yet */
	off_t beyond_start, beyond_end;
} spool = {.fd = -1, .beyond = -1};

static bool is_spool_empty(void)
{
	return spool.start == spool.end && spool.beyond_start == spool.beyond_end;
}

static bool is_writable(int ms)
{
	struct pollfd p = {.fd = spool.fd, .events = POLLOUT};

	return poll(&p, 1, ms) > 0;
}

/* Whole lines where that can be: stderr has other lines, too. */
static size_t next_write_len(void)
{
	size_t len = spool.end - spool.start;
	const char *at = spool.kept + spool.start, *line;

	if (len > WRITE_MAX)
		len = WRITE_MAX;
	line = memrchr(at, '\n', len);
	return line ? (size_t)(line + 1 - at) : len;
}

static void discard_spool(int error)
{
	spool.error = error;
	spool.start = spool.end = 0;
	spool.beyond_start = spool.beyond_end = 0;
}

/* What is in the file comes next. */
static void refill_from_file(void)
{
	ssize_t n;

	spool.start = spool.end = 0;
	if (spool.beyond_start == spool.beyond_end)
		return;
	n = pread_full(spool.beyond, spool.kept, sizeof spool.kept, spool.beyond_start);
	if (n <= 0) {
		discard_spool(n < 0 ? errno : EIO);
		return;
	}
	spool.end = (size_t)n;
	spool.beyond_start += n;
	if (spool.beyond_start < spool.beyond_end)
		return;
	spool.beyond_start = spool.beyond_end = 0;
	(void)!ftruncate(spool.beyond, 0);
}

static void write_some(int ms)
{
	while (!is_spool_empty() && is_writable(ms)) {
		ssize_t n;

		if (spool.start == spool.end)
			refill_from_file();
		n = write(spool.fd, spool.kept + spool.start, next_write_len());
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			discard_spool(errno);
		else if (n > 0)
			spool.start += (size_t)n;
		if (spool.start == spool.end)
			refill_from_file();
	}
}

static int open_overflow_file(void)
{
	FILE *unnamed;

	if (spool.beyond >= 0)
		return 0;
	unnamed = tmpfile();
	if (!unnamed)
		return -1;
	spool.beyond = dup_above(fileno(unnamed), 3);
	fclose(unnamed);
	return spool.beyond < 0 ? -1 : 0;
}

static ssize_t spool_bytes(void *cookie, const char *bytes, size_t len)
{
	(void)cookie;
	if (spool.error)
		return (ssize_t)len;
	if (spool.start == spool.end)
		refill_from_file();
	if (spool.beyond_start == spool.beyond_end && len <= sizeof spool.kept - spool.end) {
		memcpy(spool.kept + spool.end, bytes, len);
		spool.end += len;
		return (ssize_t)len;
	}
	if (open_overflow_file() || pwrite_full(spool.beyond, bytes, len, spool.beyond_end)) {
		/* No room anywhere: then it must be waited for. */
		write_some(-1);
		if (!spool.error && write_full(spool.fd, bytes, len))
			discard_spool(errno);
		return (ssize_t)len;
	}
	spool.beyond_end += (off_t)len;
	return (ssize_t)len;
}

FILE *spool_begin(int fd)
{
	spool.fd = fd;
	spool.file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = spool_bytes});
	if (!spool.file)
		fail_as(OUT_MEMORY, "write to stdout: %m");
	return spool.file;
}

int spool_waits(void)
{
	return is_spool_empty() ? -1 : spool.fd;
}

void spool_flush(void)
{
	if (!spool.file)
		return;
	fflush(spool.file);
	write_some(0);
}

int spool_end(void)
{
	if (!spool.file)
		return 0;
	fclose(spool.file);
	spool.file = NULL;
	write_some(-1);
	close_fd(spool.beyond);
	spool.beyond = -1;
	errno = spool.error;
	return spool.error ? fail("write to stdout: %m") : 0;
}
