/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEND_WAIT_MS = 2000 };

/* Room for the descriptors, aligned as the header wants it. */
union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
};

int message_send(int fd, const struct message *m, const int *fds, unsigned count)
{
	struct iovec io = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m};
	union control control = {.room = {0}};
	struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	if (count) {
		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
	}
	while (sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN || poll(&p, 1, SEND_WAIT_MS) <= 0)
			return -1;
	}
	return 0;
}

static void take_fds(struct msghdr *h, int fds[MESSAGE_FDS], unsigned *count)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		*count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), *count * sizeof(int));
	}
}

int message_receive(int fd, struct message *m, int fds[MESSAGE_FDS], unsigned *count)
{
	struct iovec io = {.iov_base = m, .iov_len = sizeof *m};
	union control control;
	struct msghdr h = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof control.room};
	ssize_t n;
	bool reset = false;

	*count = 0;
	/* A peer that closes without having read everything resets the socket, which is reported
	 * once, before what it has sent: its rejection may be among that. */
	do
		n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset && (reset = true))));
	if (n <= 0)
		return n < 0 && errno != ECONNRESET ? -1 : 0;
	take_fds(&h, fds, count);
	if (n == sizeof *m && m->magic == MESSAGE_MAGIC && !(h.msg_flags & MSG_CTRUNC))
		return 1;
	while (*count > 0)
		close(fds[--*count]);
	errno = EPROTO;
	return -1;
}
