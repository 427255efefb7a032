/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_TCP_TCP_ZEROCOPY_H
#define LANE_TCP_TCP_ZEROCOPY_H

/*
 * Sending blocks over TCP without copying them into the kernel (MSG_ZEROCOPY: Linux,
 * Documentation/networking/msg_zerocopy.rst).
 *
 * Whether it pays is the kernel's to say: where it had to copy after all (loopback, veth, an
 * adapter that can't gather) its notification tells, and from then on this connection sends
 * plainly.
 *
 * No block is kept longer for it.  A credit for a block came in a segment that acknowledged all of
 * its bytes, so nothing of it will be sent again that a receiver would look at; what an adapter may
 * still have of a needless retransmission is dropped there by its sequence number.
 *
 * Notifications come by the socket's error queue, which makes poll report POLLERR.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct zerocopy {
	bool on;
	uint32_t waiting; /* sends of which no notification has come */
};

/* Blocks of this size will be sent over fd: try, if the kernel and the size allow it. */
void zerocopy_begin(struct zerocopy *z, int fd, size_t block_size);
/* As send(2), never waits and raises no SIGPIPE. */
ssize_t zerocopy_send(struct zerocopy *z, int fd, const void *from, size_t len);
/* Take in notifications; how many there were. */
unsigned zerocopy_reap(struct zerocopy *z, int fd);

#endif
