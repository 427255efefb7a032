/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_H
#define SESSION_CHANNEL_H

/*
 * The byte stream under a control channel: a pair of descriptors (ssh's stdio, a socket pair)
 * or TLS 1.3 with a pre-shared key over TCP.  Non-blocking; used by one thread at a time.
 * read and write return bytes, 0 for "not now" (poll events() on fds), -1 with a failure;
 * read's *eof is set at the end of the stream.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lane/connect.h"
#include "session/key.h"

struct channel;

/* Owns both descriptors (which may be equal) and makes them non-blocking. */
int channel_over_fds(int in, int out, struct channel **out_ch);

/* A TLS session over a connected socket; handshake not yet done.  Owns fd. */
int channel_tls_client(int fd, const struct psk *key, struct channel **out);
int channel_tls_server(int fd, const struct psk *key, struct channel **out);
/* One step: 1 done, 0 not now, -1 failed (OUT_AUTH: the key did not match). */
int channel_handshake(struct channel *c);
/* 32 bytes for the lanes that both ends of a finished TLS session know, and nobody else. */
int channel_secret(struct channel *c, uint8_t to[static LANE_SECRET]);

ssize_t channel_read(struct channel *c, void *to, size_t len, bool *eof);
ssize_t channel_write(struct channel *c, const void *from, size_t len);
/* Fill in up to two pollfds for what the channel waits for now; returns how many. */
int channel_polls(struct channel *c, bool want_write, struct pollfd p[static 2]);
/* The socket's addresses; false for descriptors that are no sockets. */
bool channel_addresses(const struct channel *c, union address *local, union address *peer);
void channel_free(struct channel *c);

#endif
