/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_CONTROL_H
#define SESSION_CHANNEL_CONTROL_H

/*
 * The control channel: frames over a channel, owned by one thread of this process.
 *
 * That thread reads frames, answers PING at once, sends PING when the channel is idle, detects a
 * silent peer, and passes every other frame to on_frame(). It never opens, registers, joins or
 * waits for anything else, and on_frame() must not do so either.
 *
 * Any thread may call control_send(). It appends to an outbox of OUTBOX_MAX bytes and waits while
 * the outbox is full. In the control thread it fails instead of waiting. A handler sends only small
 * answers, to requests whose number is bounded at the peer.
 *
 * on_lost() is called once, in the control thread, when the channel is lost: end of stream (clean:
 * the last frame was complete), an error, or silence. failed() has the reason (OUT_PEER_LOST,
 * OUT_TIMEOUT, OUT_PROTOCOL, OUT_SOCKET). It is not called after control_close().
 *
 * on_refused() is called before on_lost(), at most once, when input is no longer usable but can
 * still be answered: after an invalid frame, or when the peer is silent but its host still
 * acknowledges what we send. From then on only the end of the stream is read; sending continues. If
 * on_refused is NULL, on_lost() is called instead.
 *
 * The silence timeout starts at the peer's last byte on any path (heard_ms). So an interruption
 * that the lanes survived does not end the session while TCP still waits to retransmit this
 * channel's bytes. After CHANNEL_TIMEOUTS times the timeout the channel is given up even if lanes
 * live.
 *
 * Only time in which this process ran counts as silence. If the thread finds that it was stopped
 * (its poll returned seconds late), it starts to count again. Without pings (a conductor), PING and
 * PONG go to on_frame() like any other frame.
 */

#include <stdbool.h>
#include <stdint.h>
#include "base/cursor.h"
#include "protocol/message.h"
#include "session/channel/channel.h"

struct control;

struct control_handler {
	/* Returns 0; or -1 with a failure: the channel is then given up as after an error. */
	int (*on_frame)(void *ctx, const struct frame *f);
	void (*on_lost)(void *ctx, bool clean);
	void (*on_refused)(void *ctx);
	/* When the peer was last heard on another path than this channel (clock_ms); 0: never.
	 * NULL: no such path. Must not wait. */
	uint64_t (*heard_ms)(void *ctx);
	void *ctx;
	int timeout_ms; /* silence timeout; 0: none */
	bool pings; /* send PING (an end); a conductor only relays them */
	const char *peer; /* its name in failures; NULL: "the peer"; copied */
};

enum { OUTBOX_MAX = 1 << 20 };

/* Owns ch from here on, unless it fails. already_read: bytes of the stream that were read before;
 * copied. *out is set before the first handler is called. */
int control_start(struct channel *ch, const struct control_handler *h, const void *already_read,
		  size_t already_read_len, struct control **out);

/* Queues a frame. Returns 0, or -1: the channel is lost or being closed, or, where the call does
 * not wait, the outbox is full (OUT_TIMEOUT). Any thread. */
int control_send(struct control *c, uint8_t type, const void *body, size_t len);
/* The same without waiting, in any thread. Returns -1 (OUT_TIMEOUT) also if the outbox is full. A
 * part of the outbox is reserved for this call and for the control thread, for final messages. */
int control_post(struct control *c, uint8_t type, const void *body, size_t len);

/* From now on control_send() does not wait; it acts as control_post(). For a session that has
 * failed and waits for its threads. */
void control_no_wait(struct control *c);

/* How many PINGs were sent or are about to be, and the number of the last one that was answered.
 * Its answer proves that the peer has seen everything queued before that PING, and that everything
 * the peer sent before the answer has arrived. */
uint64_t control_pings(const struct control *c, uint64_t *answered);

/* Changes the silence timeout (after HELLO both ends agree on the smaller one). Any thread. */
void control_set_timeout(struct control *c, int timeout_ms);

/* Waits until everything queued has been written, and has reached a TCP peer, but no longer than
 * the deadline. Returns 0 or -1. Not from the control thread. */
int control_flush(struct control *c, uint64_t deadline_ms);

/* Stops the thread and frees all. c may be NULL. Not from the control thread. */
void control_close(struct control *c);

#endif
