/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd_pass.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

union fd_control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

ssize_t fd_send(int socket, const void *bytes, size_t len, int fd, int flags)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
	union fd_control control = {0};
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof control.room,
	};

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(socket, &m, flags | MSG_NOSIGNAL);
}

ssize_t fd_receive(int socket, void *bytes, size_t len, int *fd, int flags)
{
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	union fd_control control = {0};
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof control.room,
	};
	ssize_t n = recvmsg(socket, &m, flags | MSG_CMSG_CLOEXEC);
	struct cmsghdr *head = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	*fd = -1;
	if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof *fd))
		memcpy(fd, CMSG_DATA(head), sizeof *fd);
	else if (n >= 0)
		errno = m.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
	return n;
}
