/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_FRAMER_H
#define SESSION_CHANNEL_FRAMER_H

/*
 * Cuts frames out of a byte stream, in a buffer of fixed size: a peer's frames never take more
 * memory than this.
 *
 *	room = framer_room(fr, &size);  n = read(.., room, size);  framer_filled(fr, n);
 *	while ((rc = framer_next(fr, &frame)) > 0)
 *		use(&frame);
 *
 * control.c uses it in a channel's own thread. Before that thread runs, and where code waits for
 * one frame at a time, use frame_read() and frame_write().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "protocol/message.h"
#include "session/channel/channel.h"

enum { FRAMER_SIZE = FRAME_HEAD + FRAME_BODY_MAX };

struct framer {
	size_t start, end; /* the bytes filled in and not yet returned by framer_next() */
	uint8_t bytes[FRAMER_SIZE];
};
void framer_init(struct framer *fr);
/* Clears all received bytes from memory, because START's secret may be among them. */
void framer_wipe(struct framer *fr);
/* Where to put further bytes, and how many fit: at least one after framer_next() returned 0.
 * Invalidates frames returned before. */
void *framer_room(struct framer *fr, size_t *size);
void framer_filled(struct framer *fr, size_t len);
/* The next complete frame. Returns 1; 0 if more bytes are needed; -1 with OUT_PROTOCOL. */
int framer_next(struct framer *fr, struct frame *f);
/* Bytes not yet returned, to pass to control_start() as `already_read'. */
const void *framer_rest(const struct framer *fr, size_t *len);

/* Waits for a frame until deadline_ms (clock_ms; 0: without limit). Returns 1 with a frame that is
 * valid until the next call; 0 at the end of the stream between two frames; -1 with a failure
 * (OUT_TIMEOUT, OUT_PEER_LOST, OUT_PROTOCOL, or OUT_SIGNAL once cancelled()). */
int frame_read(struct channel *ch, struct framer *fr, uint64_t deadline_ms, struct frame *f);
/* Writes a frame, waiting while the channel accepts no more. Returns 0 or -1. */
int frame_write(struct channel *ch, uint8_t type, const void *body, size_t len,
		uint64_t deadline_ms);

#endif
