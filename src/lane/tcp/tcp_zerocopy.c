/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/tcp/tcp_zerocopy.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <linux/errqueue.h>
#include "base/log.h"

enum {
	/* Below this, pinning pages costs more than copying them. The kernel's documentation says
	 * about 10 KiB; blocks below 64 KiB are also a sign of scarce memory. */
	ZEROCOPY_LEAST = 64 << 10,
	REAP_EVERY = 16, /* sends between reading notifications */
};

void zerocopy_begin(struct zerocopy *z, int fd, size_t block_size)
{
	int on = 1;

	*z = (struct zerocopy){0};
	z->on = block_size >= ZEROCOPY_LEAST &&
		setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
}

/* Returns for how many sends this message of the error queue is a notification; 0: it is none. */
static uint32_t parse_notification(struct zerocopy *z, struct msghdr *m)
{
	struct sock_extended_err e;
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	if (!c || c->cmsg_len < CMSG_LEN(sizeof e) ||
	    !((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
	      (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)))
		return 0;
	memcpy(&e, CMSG_DATA(c), sizeof e);
	if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY || e.ee_errno != 0)
		return 0;
	if (z->on && (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED)) {
		log_trace("zero-copy off: the kernel copies on this connection");
		z->on = false;
	}
	return e.ee_data - e.ee_info + 1;
}

unsigned zerocopy_reap(struct zerocopy *z, int fd)
{
	unsigned found = 0;

	while (z->waiting > 0) {
		char control[256];
		struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
		uint32_t sends;

		if (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			break;
		sends = parse_notification(z, &m);
		z->waiting -= sends < z->waiting ? sends : z->waiting;
		found++;
	}
	return found;
}

ssize_t zerocopy_send(struct zerocopy *z, int fd, const void *from, size_t len)
{
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT;

	if (z->on && len >= ZEROCOPY_LEAST) {
		ssize_t n = send(fd, from, len, flags | MSG_ZEROCOPY);

		if (n > 0 && ++z->waiting % REAP_EVERY == 0)
			zerocopy_reap(z, fd);
		if (n >= 0 || errno != ENOBUFS)
			return n;
		/* Too much memory is pinned, or too many notifications wait: copy this send. */
		if (zerocopy_reap(z, fd) == 0)
			z->on = false;
	}
	return send(fd, from, len, flags);
}
