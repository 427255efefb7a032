/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of frames as an end reads it, without its threads. The first byte is the size of the
 * pieces in which it arrives. The frames must not depend on that size.
 */
#include <stdlib.h>
#include <string.h>
#include "recode.h"
#include "session/channel/framer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A summary of the decoded stream, to compare two runs. */
struct heard {
	unsigned frames, decoded;
	uint64_t sum;
	bool refused;
};

static struct framer framer;
static union any_message message;
static uint8_t body[FRAME_BODY_MAX];

static void hear(struct heard *h, const struct frame *f)
{
	struct writer w = writer_of(body, sizeof body);

	h->frames++;
	h->sum = h->sum * 31 + f->type;
	for (uint32_t i = 0; i < f->len; i++)
		h->sum = h->sum * 31 + f->body[i];
	if (recode(f, &message, &w) == 0)
		h->decoded++;
	if (w.full)
		abort();
}

/* Feeds at most piece bytes; returns false if the stream was refused. */
static bool feed(struct heard *h, const uint8_t **at, size_t *left, size_t piece)
{
	struct frame f;
	size_t room;
	void *to = framer_room(&framer, &room);
	size_t len = *left < piece ? *left : piece;
	int rc;

	if (room == 0)
		abort();
	if (len > room)
		len = room;
	memcpy(to, *at, len);
	framer_filled(&framer, len);
	*at += len;
	*left -= len;
	while ((rc = framer_next(&framer, &f)) > 0)
		hear(h, &f);
	h->refused = rc < 0;
	return rc == 0;
}

static struct heard listen_in(const uint8_t *data, size_t size, size_t piece)
{
	struct heard h = {0};

	framer_init(&framer);
	while (size > 0 && feed(&h, &data, &size, piece))
		;
	return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct heard whole, cut;

	if (size < 1)
		return 0;
	whole = listen_in(data + 1, size - 1, SIZE_MAX);
	cut = listen_in(data + 1, size - 1, 1 + (size_t)data[0]);
	if (whole.frames != cut.frames || whole.decoded != cut.decoded || whole.sum != cut.sum ||
	    whole.refused != cut.refused)
		abort();
	return 0;
}
