/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/output/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

/* A pipe that polls writable takes WRITE_MAX bytes without blocking (PIPE_BUF). */
enum { KEPT_MAX = 1 << 20, WRITE_MAX = 4096 };

static struct {
	FILE *file;
	int fd;
	int error; /* errno of the first failed write; nothing is written after it */
	bool reported;
	char kept[KEPT_MAX];
	size_t start, end; /* of the bytes in kept[] */
	int overflow_fd; /* an unnamed file for what kept[] has no room for; -1: none yet */
	off_t overflow_start, overflow_end;
} spool = {.fd = -1, .overflow_fd = -1};

static bool is_spool_empty(void)
{
	return spool.start == spool.end && spool.overflow_start == spool.overflow_end;
}

static bool is_writable(int ms)
{
	struct pollfd p = {.fd = spool.fd, .events = POLLOUT};

	return poll(&p, 1, ms) > 0;
}

/* Whole lines if possible, because stderr may carry other lines too. */
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
	spool.overflow_start = spool.overflow_end = 0;
}

/* The overflow file continues what kept[] had. */
static void refill_from_file(void)
{
	ssize_t n;

	spool.start = spool.end = 0;
	if (spool.overflow_start == spool.overflow_end)
		return;
	n = pread_full(spool.overflow_fd, spool.kept, sizeof spool.kept, spool.overflow_start);
	if (n <= 0) {
		discard_spool(n < 0 ? errno : EIO);
		return;
	}
	spool.end = (size_t)n;
	spool.overflow_start += n;
	if (spool.overflow_start < spool.overflow_end)
		return;
	spool.overflow_start = spool.overflow_end = 0;
	(void)!ftruncate(spool.overflow_fd, 0);
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

	if (spool.overflow_fd >= 0)
		return 0;
	unnamed = tmpfile();
	if (!unnamed)
		return -1;
	spool.overflow_fd = dup_above(fileno(unnamed), 3);
	fclose(unnamed);
	return spool.overflow_fd < 0 ? -1 : 0;
}

static ssize_t spool_bytes(void *cookie, const char *bytes, size_t len)
{
	(void)cookie;
	if (spool.error)
		return (ssize_t)len;
	if (spool.start == spool.end)
		refill_from_file();
	if (spool.overflow_start == spool.overflow_end && len <= sizeof spool.kept - spool.end) {
		memcpy(spool.kept + spool.end, bytes, len);
		spool.end += len;
		return (ssize_t)len;
	}
	if (open_overflow_file() ||
	    pwrite_full(spool.overflow_fd, bytes, len, spool.overflow_end)) {
		/* There is no room anywhere, so wait until the reader takes the bytes. */
		write_some(-1);
		if (!spool.error && write_full(spool.fd, bytes, len))
			discard_spool(errno);
		return (ssize_t)len;
	}
	spool.overflow_end += (off_t)len;
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

int spool_pending_fd(void)
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

static int report_spool_error(void)
{
	if (!spool.error || spool.reported)
		return 0;
	spool.reported = true;
	errno = spool.error;
	return fail("write to stdout: %m");
}

int spool_check(void)
{
	spool_flush();
	return report_spool_error();
}

int spool_end(void)
{
	if (!spool.file)
		return 0;
	fclose(spool.file);
	spool.file = NULL;
	write_some(-1);
	close_fd(spool.overflow_fd);
	spool.overflow_fd = -1;
	return report_spool_error();
}
