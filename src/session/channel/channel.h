/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_CHANNEL_H
#define SESSION_CHANNEL_CHANNEL_H

/*
 * The byte stream under a control channel: a pair of descriptors (ssh's stdio, a socket pair), or
 * TLS 1.3 with a pre-shared key over TCP. Non-blocking; used by one thread at a time. read and
 * write return a number of bytes, 0 for "not now" (then poll what channel_polls() returns), or -1
 * with a failure. At the end of the stream, read returns 0 and sets *eof. TLS has an end of stream
 * that can't be forged: if the connection closes without it, that is a failure, OUT_PEER_LOST.
 *
 * The channel may hold buffered bytes that poll(2) does not know about: read until it returns "not
 * now" before polling. Writing to a closed peer raises SIGPIPE; the programs ignore it.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/address.h"
#include "lane/head.h"
#include "session/channel/key.h"
#include "session/channel/key_ring.h"

struct channel;

/* Owns both descriptors, which may be equal, also on failure. Makes them non-blocking;
 * channel_free() restores that before it closes them, because a terminal is shared with others. */
int channel_over_fds(int in, int out, struct channel **out_ch);

/* A TLS session over a connected socket, before its handshake. Owns fd, also on failure. */
int channel_tls_client(int fd, const struct psk *key, struct channel **out);
int channel_tls_server(int fd, const struct psk *key, struct channel **out);
/* Who connects, as the identity of the key states it: a source (default), or a conductor of this
 * user ("-": any holder of the key). Before the handshake, of TLS only, as the next ones. */
enum caller_role { CALLER_SOURCE, CALLER_CONDUCTOR };
void channel_set_caller(struct channel *c, enum caller_role caller, const char *user);
/* A server that lets in conductors of any user of the ring, which is borrowed until the end of the
 * handshake. Its own key is not used and may be NULL. */
void channel_set_ring(struct channel *c, const struct key_ring *ring);
/* The user that the client claims to be, proved after the handshake; "": none that could be. */
const char *channel_user(const struct channel *c);
/* One step of the handshake. Returns 1 when done (at once for descriptors), 0 for "not now", -1 on
 * failure: OUT_AUTH: the key did not match; OUT_PEER_LOST: the peer closed or reset the connection;
 * OUT_PROTOCOL: the peer does not speak this protocol. */
int channel_handshake(struct channel *c);
/* Sets the peer's name in failures ("the peer" by default). Copies name. */
void channel_set_peer(struct channel *c, const char *name);
/* Derives 32 secret bytes for the lanes, known only to both ends of a finished TLS session. -1 for
 * descriptors. */
int channel_secret(struct channel *c, uint8_t to[static LANE_SECRET]);

ssize_t channel_read(struct channel *c, void *to, size_t len, bool *eof);
/* After a write that failed, all fail, and the channel is cut: the peer may have got a part of a
 * message. */
ssize_t channel_write(struct channel *c, const void *from, size_t len);
bool channel_is_cut(const struct channel *c);
/* Fills in up to two pollfds for the events that the channel now waits for; returns their
 * number. */
int channel_polls(struct channel *c, bool want_write, struct pollfd p[static 2]);
/* The socket's addresses. Returns false if the descriptors are not sockets. */
bool channel_addresses(const struct channel *c, union address *local, union address *peer);
/* The shortest round-trip time of a TCP connection that its kernel has measured; 0 for other
 * channels. */
uint32_t channel_rtt_us(const struct channel *c);
/* How long silence may last: a TCP connection retransmits more often within it. */
void channel_set_timeout(const struct channel *c, int timeout_ms);
/* Bytes written to a TCP peer that its kernel has not acknowledged; 0 for other channels. Any
 * thread, as long as the channel exists. */
size_t channel_unsent(const struct channel *c);
/* Waits until a TCP peer's kernel has acknowledged everything written. Closing a socket with unread
 * input discards whatever has not arrived. Returns false if deadline_ms passed, or at once if the
 * connection is broken. */
bool channel_flush(const struct channel *c, uint64_t deadline_ms);
/* Frees c in a forked process that does not use it: the peer notices nothing. */
void channel_forget(struct channel *c);
/* Sends the end of the TLS stream if that is possible at once, and closes. Keeps errno. c may be
 * NULL. */
void channel_free(struct channel *c);

#endif
