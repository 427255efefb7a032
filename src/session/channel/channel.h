/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_CHANNEL_H
#define SESSION_CHANNEL_CHANNEL_H

/*
 * The byte stream under a control channel: a pair of descriptors (ssh's stdio, a socket pair)
 * or TLS 1.3 with a pre-shared key over TCP.  Non-blocking; used by one thread at a time.
 * read and write return bytes, 0 for "not now" (poll what channel_polls() says), -1 with a
 * failure; read's *eof is set (and 0 returned) at the end of the stream.  TLS has an end that
 * can't be forged: a connection that closes without it is a failure, OUT_PEER_LOST.
 *
 * Bytes may be at hand that poll(2) knows nothing of: read until it says "not now" before
 * polling.  Writing to a peer that is gone raises SIGPIPE: the programs ignore it.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/address.h"
#include "lane/head.h"
#include "session/channel/key.h"

struct channel;

/* Owns both descriptors (which may be equal) and makes them non-blocking. */
int channel_over_fds(int in, int out, struct channel **out_ch);

/* A TLS session over a connected socket; handshake not yet done.  Owns fd. */
int channel_tls_client(int fd, const struct psk *key, struct channel **out);
int channel_tls_server(int fd, const struct psk *key, struct channel **out);
/* One step: 1 done, 0 not now, -1 failed: OUT_AUTH the key did not match, OUT_PEER_LOST the
 * peer closed or reset the connection, OUT_PROTOCOL it is no such peer.  1 at once for
 * descriptors. */
int channel_handshake(struct channel *c);
/* What to call the peer in failures ("the peer" at first); copied. */
void channel_set_peer(struct channel *c, const char *name);
/* 32 bytes for the lanes that both ends of a finished TLS session know, and nobody else. */
int channel_secret(struct channel *c, uint8_t to[static LANE_SECRET]);

ssize_t channel_read(struct channel *c, void *to, size_t len, bool *eof);
ssize_t channel_write(struct channel *c, const void *from, size_t len);
/* Fill in up to two pollfds for what the channel waits for now; returns how many. */
int channel_polls(struct channel *c, bool want_write, struct pollfd p[static 2]);
/* The socket's addresses; false for descriptors that are no sockets. */
bool channel_addresses(const struct channel *c, union address *local, union address *peer);
/* Bytes written to a TCP peer whose kernel has not acknowledged them; 0 for other channels.
 * Any thread, while the channel is there. */
size_t channel_unsent(const struct channel *c);
/* Until a TCP peer's kernel has all that was written: closing a socket that has not been read empty
 * throws away what has not arrived.  False: not by deadline_ms. */
bool channel_flush(const struct channel *c, uint64_t deadline_ms);
/* Says goodbye if that can be done at once, and closes; errno stays. NULL is fine. */
void channel_free(struct channel *c);

#endif
