/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_CHANNEL_OPS_H
#define SESSION_CHANNEL_CHANNEL_OPS_H

/*
 * The interface between channel.c and the two kinds of stream (descriptors in channel.c, TLS in
 * tls.c). Private to these files. Each kind's struct begins with struct channel.
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
	int write_error; /* errno of a write that failed: nothing more is sent; 0: none */
	char peer[CHANNEL_PEER_MAX];
};

void channel_init(struct channel *c, const struct channel_ops *ops, int in, int out);
/* Sets O_NONBLOCK and stores the previous flags in *old, if not NULL. Returns 0, or -1 with a
 * failure. */
int descriptor_unblock(int fd, int *old);
/* Makes errno the failure of the stream. what is "read from" or "write to". Returns -1. */
int channel_broken(const struct channel *c, const char *what);

#endif
