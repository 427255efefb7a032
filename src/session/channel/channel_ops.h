/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_CHANNEL_OPS_H
#define SESSION_CHANNEL_CHANNEL_OPS_H

/*
 * Between channel.c and its two kinds of stream (channel.c's descriptors, tls.c); nobody else
 * includes this.  Each kind embeds struct channel first.
 */

#include "session/channel/channel.h"

enum { CHANNEL_PEER_MAX = 256 };

struct channel_ops {
	int (*handshake)(struct channel *c);
	int (*secret)(struct channel *c, uint8_t *to);
	ssize_t (*read)(struct channel *c, void *to, size_t len, bool *eof);
	ssize_t (*write)(struct channel *c, const void *from, size_t len);
	int (*polls)(struct channel *c, bool want_write, struct pollfd *p);
	void (*free)(struct channel *c);
};

struct channel {
	const struct channel_ops *ops;
	int in, out;
	char peer[CHANNEL_PEER_MAX];
};

void channel_init(struct channel *c, const struct channel_ops *ops, int in, int out);
/* Set O_NONBLOCK; the flags as they were in *old, if not NULL.  0, or -1 with a failure. */
int descriptor_unblock(int fd, int *old);
/* The failure of a stream that errno broke; what is "read from" or "write to". Returns -1. */
int channel_broken(const struct channel *c, const char *what);

#endif
