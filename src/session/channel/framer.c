/* SPDX-License-Identifier: Apache-2.0 */
#include "session/channel/framer.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "base/worker.h"

void framer_init(struct framer *fr)
{
	fr->start = 0;
	fr->end = 0;
}

void framer_wipe(struct framer *fr)
{
	explicit_bzero(fr, sizeof *fr);
}

void *framer_room(struct framer *fr, size_t *size)
{
	if (fr->start > 0) {
		memmove(fr->bytes, fr->bytes + fr->start, fr->end - fr->start);
		fr->end -= fr->start;
		fr->start = 0;
	}
	*size = sizeof fr->bytes - fr->end;
	return fr->bytes + fr->end;
}

void framer_filled(struct framer *fr, size_t len)
{
	fr->end += len;
}

int framer_next(struct framer *fr, struct frame *f)
{
	size_t have = fr->end - fr->start;

	if (have < FRAME_HEAD)
		return 0;
	if (frame_head_decode(fr->bytes + fr->start, &f->type, &f->len) != 0)
		return -1;
	if (have < FRAME_HEAD + (size_t)f->len)
		return 0;
	f->body = fr->bytes + fr->start + FRAME_HEAD;
	fr->start += FRAME_HEAD + (size_t)f->len;
	return 1;
}

const void *framer_rest(const struct framer *fr, size_t *len)
{
	*len = fr->end - fr->start;
	return fr->bytes + fr->start;
}

/* poll(2) does not notice a signal that arrives just before it, so wake up this often. */
enum { SIGNAL_CHECK_MS = 250 };

static int wait_for_channel(struct channel *ch, bool to_write, uint64_t deadline_ms)
{
	struct pollfd p[2];
	int n = channel_polls(ch, to_write, p);
	int left = deadline_ms ? clock_left(deadline_ms) : SIGNAL_CHECK_MS;
	int rc = poll(p, (nfds_t)n, left < SIGNAL_CHECK_MS ? left : SIGNAL_CHECK_MS);

	if (cancelled())
		return fail_signal(cancelled());
	if (rc < 0 && errno != EINTR)
		return fail_as(OUT_SOCKET, "wait for the peer: %m");
	if (deadline_ms && clock_ms() >= deadline_ms)
		return fail_as(OUT_TIMEOUT, "the peer has been silent for too long");
	return 0;
}

int frame_read(struct channel *ch, struct framer *fr, uint64_t deadline_ms, struct frame *f)
{
	for (;;) {
		int rc = framer_next(fr, f);
		size_t room;
		void *to;
		ssize_t n;
		bool eof;

		if (rc != 0)
			return rc;
		to = framer_room(fr, &room);
		n = channel_read(ch, to, room, &eof);
		if (n < 0)
			return -1;
		if (eof && fr->end == fr->start)
			return 0;
		if (eof)
			return fail_as(OUT_PEER_LOST,
				       "the peer closed the connection in the middle of a message");
		framer_filled(fr, (size_t)n);
		if (n == 0 && wait_for_channel(ch, false, deadline_ms) != 0)
			return -1;
	}
}

static int write_all(struct channel *ch, const uint8_t *at, size_t len, uint64_t deadline_ms)
{
	while (len > 0) {
		ssize_t n = channel_write(ch, at, len);

		if (n < 0)
			return -1;
		at += n;
		len -= (size_t)n;
		if (n == 0 && wait_for_channel(ch, true, deadline_ms) != 0)
			return -1;
	}
	return 0;
}

int frame_write(struct channel *ch, uint8_t type, const void *body, size_t len,
		uint64_t deadline_ms)
{
	uint8_t head[FRAME_HEAD];

	if (len > FRAME_BODY_MAX)
		return fail_as(OUT_PROTOCOL, "%s of %zu bytes is too long", message_name(type),
			       len);
	frame_head_encode(type, (uint32_t)len, head);
	if (write_all(ch, head, sizeof head, deadline_ms) != 0)
		return -1;
	return write_all(ch, body, len, deadline_ms);
}
