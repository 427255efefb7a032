/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/worker.h"

bool io_interrupted(void)
{
	if (errno != EINTR)
		return false;
	if (!cancelled())
		return true;
	errno = ECANCELED;
	return false;
}

/*
 * Whether to repeat a call that failed. An inherited descriptor may be non-blocking (ssh leaves
 * terminals and pipes so). Then this waits in poll(2).
 */
static int may_retry(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	if (errno == EAGAIN && poll(&p, 1, -1) >= 0)
		return 1;
	return io_interrupted();
}

ssize_t read_full(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, (char *)buf + done, len - done);

		if (n == 0)
			break;
		if (n > 0)
			done += (size_t)n;
		else if (!may_retry(fd, POLLIN))
			return -1;
	}
	return (ssize_t)done;
}

ssize_t pread_full(int fd, void *buf, size_t len, off_t pos)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, pos + (off_t)done);

		if (n == 0)
			break;
		if (n > 0)
			done += (size_t)n;
		else if (!may_retry(fd, POLLIN))
			return -1;
	}
	return (ssize_t)done;
}

int write_full(int fd, const void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(fd, (const char *)buf + done, len - done);

		if (n == 0) {
			errno = EIO;
			return -1;
		}
		if (n > 0)
			done += (size_t)n;
		else if (!may_retry(fd, POLLOUT))
			return -1;
	}
	return 0;
}

int pwrite_full(int fd, const void *buf, size_t len, off_t pos)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, pos + (off_t)done);

		if (n == 0) {
			errno = EIO;
			return -1;
		}
		if (n > 0)
			done += (size_t)n;
		else if (!may_retry(fd, POLLOUT))
			return -1;
	}
	return 0;
}

static void abort_with_message(void)
{
	static const char text[] =
		"sluice: cannot wake a thread (write to its eventfd failed): abort\n";

	(void)!write(STDERR_FILENO, text, sizeof text - 1);
	abort();
}

void raise_event(int fd)
{
	const uint64_t one = 1;
	int err = errno;
	ssize_t n;

	do
		n = write(fd, &one, sizeof one);
	while (n < 0 && errno == EINTR);
	if (n != sizeof one && !(n < 0 && errno == EAGAIN))
		abort_with_message();
	errno = err;
}

int dup_above(int fd, int least)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, least);

	/* fcntl(2) returns EINVAL if `least' is beyond the limit of descriptors. */
	if (copy < 0 && errno == EINVAL)
		errno = EMFILE;
	return copy;
}

bool lacks_room_for_fd(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int count_readable(int fd)
{
	int bytes = 0;

	return ioctl(fd, FIONREAD, &bytes) ? -1 : bytes;
}

void close_fd(int fd)
{
	int err = errno;

	if (fd >= 0)
		close(fd);
	errno = err;
}
