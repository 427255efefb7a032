/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CHANNEL_FRAMER_H
#define SESSION_CHANNEL_FRAMER_H

/*
 * Frames out of a byte stream, in a buffer of fixed size: whatever a peer says, this is all
 * the memory that its frames ever take.
 *
 *	room = framer_room(fr, &size);  n = read(.., room, size);  framer_filled(fr, n);
 *	while ((rc = framer_next(fr, &frame)) > 0)
 *		use(&frame);
 *
 * For whoever has a thread of its own for a channel: control.c; before that, and where frames
 * are awaited one by one, frame_read() and frame_write().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "protocol/message.h"
#include "session/channel/channel.h"

enum { FRAMER_SIZE = FRAME_HEAD + FRAME_BODY_MAX };

struct framer {
	size_t start, end; /* of what was filled and not yet returned by framer_next() */
	uint8_t bytes[FRAMER_SIZE];
};
void framer_init(struct framer *fr);
/* Nothing of what came stays in memory: START's secret may be among it. */
void framer_wipe(struct framer *fr);
/* Where to put further bytes, and how many fit: at least one once framer_next() said 0.
 * Frames returned before are no longer valid. */
void *framer_room(struct framer *fr, size_t *size);
void framer_filled(struct framer *fr, size_t len);
/* The next whole frame: 1, 0 when more bytes are needed, -1 with OUT_PROTOCOL. */
int framer_next(struct framer *fr, struct frame *f);
/* Bytes not yet returned: what control_start() takes as `before'. */
const void *framer_rest(const struct framer *fr, size_t *len);

/* Wait for a frame until deadline_ms (clock_ms; 0: for ever).  1 with a frame, valid until the
 * next call; 0 at the end of the stream between two frames; -1 with a failure (OUT_TIMEOUT,
 * OUT_PEER_LOST, OUT_PROTOCOL, and OUT_SIGNAL once cancelled()). */
int frame_read(struct channel *ch, struct framer *fr, uint64_t deadline_ms, struct frame *f);
/* Write a frame, waiting while the channel takes no more; 0 or -1. */
int frame_write(struct channel *ch, uint8_t type, const void *body, size_t len,
		uint64_t deadline_ms);

#endif
