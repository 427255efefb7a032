/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROTOCOL_DECODER_H
#define PROTOCOL_DECODER_H

/*
 * A reader that remembers the first invalid field. Only for message*.c and record*.c.
 */

#include "protocol/message.h"

struct decoder {
	struct reader r;
	const char *what; /* name of the message */
	const char *wrong; /* the first invalid field; NULL: none yet */
};

static inline struct decoder decoder_of(const struct frame *f)
{
	return (struct decoder){
		.r = reader_of(f->body, f->len),
		.what = message_name(f->type),
	};
}

/* Records `field' as invalid if the field just taken is truncated or not right. */
static inline void decoder_require(struct decoder *d, bool right, const char *field)
{
	if (!d->wrong && (d->r.bad || !right))
		d->wrong = field;
}

static inline bool take_bool(struct decoder *d, const char *field)
{
	uint8_t v = take_u8(&d->r);

	decoder_require(d, v <= 1, field);
	return v == 1;
}

static inline void take_text(struct decoder *d, char *to, size_t size, const char *field)
{
	take_str(&d->r, to, size);
	decoder_require(d, true, field);
}

/* Takes any outcome but OUT_DONE; OUT_DONE too if done is set. */
static inline uint8_t take_outcome(struct decoder *d, bool done)
{
	uint8_t code = take_u8(&d->r);

	decoder_require(d, done || code != OUT_DONE, "code");
	return (uint8_t)outcome_from(code);
}

void total_take(struct decoder *d, struct msg_total *m);
void times_take(struct decoder *d, struct msg_times *m);

/* Returns 0 if no field was invalid and no bytes are left, else -1 with a failure. */
int decoder_finish(struct decoder *d);

/* Rejects a block size of zero; a caller that allows zero checks for it first. */
static inline bool block_size_fits(uint32_t size)
{
	return size >= LANE_BLOCK_MIN && size <= LANE_BLOCK_MAX && (size & (size - 1)) == 0;
}

#endif
