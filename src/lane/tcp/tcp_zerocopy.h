/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_TCP_TCP_ZEROCOPY_H
#define LANE_TCP_TCP_ZEROCOPY_H

/*
 * Sends blocks over TCP without copying them into the kernel (MSG_ZEROCOPY: Linux,
 * Documentation/networking/msg_zerocopy.rst).
 *
 * The kernel reports whether it pays. If the kernel had to copy anyway (loopback, veth, an adapter
 * without scatter/gather), its notification says so, and from then on this connection sends without
 * MSG_ZEROCOPY.
 *
 * Zero-copy holds no block longer. The credit for a block came in a segment that acknowledged all
 * of its bytes, so no retransmission of them can matter to a receiver. If the adapter still holds a
 * needless retransmission, the receiver drops it by its sequence number.
 *
 * Notifications arrive in the socket's error queue, which makes poll(2) report POLLERR.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct zerocopy {
	bool on;
	uint32_t waiting; /* sends without a notification so far */
};

/* Uses zero-copy for blocks of this size on fd, if the kernel and the size allow it. */
void zerocopy_begin(struct zerocopy *z, int fd, size_t block_size);
/* Like send(2), but never waits and raises no SIGPIPE. */
ssize_t zerocopy_send(struct zerocopy *z, int fd, const void *from, size_t len);
/* Processes notifications; returns their number. */
unsigned zerocopy_reap(struct zerocopy *z, int fd);

#endif
