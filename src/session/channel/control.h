/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_CONTROL_H
#define SESSION_CHANNEL_CONTROL_H

/*
 * The control channel: frames over a channel, owned by one thread of this process.
 *
 * That thread reads frames, answers PING at once, sends PING when the line is quiet, notices
 * the peer's silence, and hands every other frame to on_frame().  It never opens, registers,
 * joins or waits for anything else, and on_frame() must not either.
 *
 * control_send() may be called from any thread: it appends to an outbox of OUTBOX_MAX bytes
 * and waits while that is full (not in the control thread itself, where it fails instead: a
 * handler sends small answers to things the peer is bounded in).
 *
 * on_lost() is called once, in the control thread, when the channel is no more: end of
 * stream (clean: whether the last frame was whole), error, or silence; failed() has the
 * sentence (OUT_PEER_LOST, OUT_TIMEOUT, OUT_PROTOCOL).  Not called after control_close().
 *
 * on_refused() comes before that, once, where what is heard is of no use any more but can still
 * be answered: a frame that can't be, or silence of a peer whose host takes what it is sent.
 * From then on nothing is heard but the stream's end; sending goes on.  NULL: that is on_lost().
 *
 * Silence is counted from the peer's last byte on any way (heard_ms), so that a cut that lanes
 * have survived ends nothing while TCP still waits to send this channel's bytes again.  But after
 * CHANNEL_TIMEOUTS times as long the channel is given up also while lanes live.
 *
 * Silence is counted in time that this process ran: a thread that finds it was stopped (its
 * poll came back seconds late) starts counting afresh.  Without pings (a conductor) PING and
 * PONG go to on_frame() like any other frame.
 */

#include <stdbool.h>
#include <stdint.h>
#include "base/cursor.h"
#include "protocol/message.h"
#include "session/channel/channel.h"

struct control;

struct control_handler {
	/* 0, or -1 with a failure: the channel is then given up as with an error. */
	int (*on_frame)(void *ctx, const struct frame *f);
	void (*on_lost)(void *ctx, bool clean);
	void (*on_refused)(void *ctx);
	/* When the peer was last heard on another way than this channel (clock_ms), 0: never; NULL:
	 * there is none.  Must not wait. */
	uint64_t (*heard_ms)(void *ctx);
	void *ctx;
	int timeout_ms; /* of silence; 0: none */
	bool pings; /* send PING (an end); a conductor only passes them on */
	const char *peer; /* its name in failures, NULL: "the peer"; copied */
};

enum { OUTBOX_MAX = 1 << 20 };

/* Owns ch from here on, unless it fails.  before: bytes of the stream that were read already. */
int control_start(struct channel *ch, const struct control_handler *h, const void *before,
		  size_t before_len, struct control **out);

/* Queue a frame; 0, or -1 when the channel is gone. */
int control_send(struct control *c, uint8_t type, const void *body, size_t len);
/* The same without waiting, in any thread: -1 (OUT_TIMEOUT) also when the outbox is full.  A part
 * of it is kept for this and for the control thread: for last words. */
int control_post(struct control *c, uint8_t type, const void *body, size_t len);

/* control_send() waits no more, now and later: it is then control_post().  For a session that
 * has failed and waits for its threads. */
void control_hurry(struct control *c);

/* How many PINGs were sent, or are about to be; and the number of the last one that was answered.
 * With that the peer has seen what was queued before that PING, and what it said to it has come. */
uint64_t control_pings(const struct control *c, uint64_t *answered);

/* Change the silence limit (both ends agree on the smaller after HELLO). */
void control_set_timeout(struct control *c, int timeout_ms);

/* Wait until all that was queued has been written, to a TCP peer until it has come there, at
 * most until the deadline; 0 or -1. */
int control_flush(struct control *c, uint64_t deadline_ms);

/* Stop the thread and free all; NULL is fine.  Not in the control thread. */
void control_close(struct control *c);

#endif
