/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "session/message.h"
#include "session/decoder.h"

#include <string.h>

enum { GREETING_MAGIC_SIZE = sizeof GREETING_MAGIC - 1, VERBOSE_MAX = 3, SIGNAL_MAX = 64 };

void msg_greeting_encode(struct writer *w, const struct msg_greeting *m)
{
	put_bytes(w, GREETING_MAGIC, GREETING_MAGIC_SIZE);
	put_u16(w, m->version);
	put_str(w, m->release);
}

int msg_greeting_decode(const struct frame *f, struct msg_greeting *m)
{
	struct decoder d = decoder_of(f);
	uint8_t magic[GREETING_MAGIC_SIZE];

	take_bytes(&d.r, magic, sizeof magic);
	need(&d, memcmp(magic, GREETING_MAGIC, sizeof magic) == 0, "magic");
	m->version = take_u16(&d.r);
	take_text(&d, m->release, sizeof m->release, "release");
	return decoded(&d);
}

void msg_start_encode(struct writer *w, const struct msg_start *m)
{
	put_u16(w, m->version);
	put_u8(w, m->role);
	put_u8(w, m->want);
	put_u8(w, m->verbose);
	put_u32(w, m->flags);
	put_bytes(w, m->secret, sizeof m->secret);
	put_u16(w, m->lanes);
	put_u16(w, m->depth);
	put_u32(w, m->block_size);
	put_u64(w, m->memory);
	put_u64(w, m->bwlimit);
	put_u32(w, m->timeout_ms);
	put_u32(w, m->connect_timeout_ms);
	put_u16(w, m->port_lo);
	put_u16(w, m->port_hi);
	put_str(w, m->host);
	put_str(w, m->peer);
	put_str(w, m->address);
	put_str(w, m->target);
}

static void start_take_limits(struct decoder *d, struct msg_start *m)
{
	m->lanes = take_u16(&d->r);
	need(d, m->lanes <= LANE_COUNT_MAX, "lanes");
	m->depth = take_u16(&d->r);
	need(d, m->depth <= LANE_DEPTH_MAX, "depth");
	m->block_size = take_u32(&d->r);
	need(d, m->block_size == 0 || block_size_fits(m->block_size), "block_size");
	m->memory = take_u64(&d->r);
	m->bwlimit = take_u64(&d->r);
	m->timeout_ms = take_u32(&d->r);
	need(d, m->timeout_ms <= INT32_MAX, "timeout_ms");
	m->connect_timeout_ms = take_u32(&d->r);
	need(d, m->connect_timeout_ms <= INT32_MAX, "connect_timeout_ms");
	m->port_lo = take_u16(&d->r);
	m->port_hi = take_u16(&d->r);
	need(d, m->port_lo <= m->port_hi && (m->port_lo || !m->port_hi), "port_hi");
}

int msg_start_decode(const struct frame *f, struct msg_start *m)
{
	struct decoder d = decoder_of(f);

	m->version = take_u16(&d.r);
	if (!d.r.bad && m->version != PROTOCOL_VERSION)
		return fail_as(OUT_VERSION, "the conductor speaks protocol %u, this is protocol %u",
			       m->version, PROTOCOL_VERSION);
	m->role = take_u8(&d.r);
	need(&d, m->role == ROLE_SOURCE || m->role == ROLE_SINK, "role");
	m->want = take_u8(&d.r);
	need(&d, m->want <= TRANSPORT_SSH, "want");
	m->verbose = take_u8(&d.r);
	need(&d, m->verbose <= VERBOSE_MAX, "verbose");
	m->flags = take_u32(&d.r);
	need(&d, (m->flags & ~(uint32_t)START_ALL) == 0, "flags");
	take_bytes(&d.r, m->secret, sizeof m->secret);
	need(&d, true, "secret");
	start_take_limits(&d, m);
	take_text(&d, m->host, sizeof m->host, "host");
	take_text(&d, m->peer, sizeof m->peer, "peer");
	take_text(&d, m->address, sizeof m->address, "address");
	take_text(&d, m->target, sizeof m->target, "target");
	return decoded(&d);
}

void msg_want_encode(struct writer *w, const struct msg_want *m)
{
	put_str(w, m->name);
}

int msg_want_decode(const struct frame *f, struct msg_want *m)
{
	struct decoder d = decoder_of(f);

	take_text(&d, m->name, sizeof m->name, "name");
	return decoded(&d);
}

void msg_note_encode(struct writer *w, const struct msg_note *m)
{
	put_u8(w, m->level);
	put_str(w, m->text);
}

int msg_note_decode(const struct frame *f, struct msg_note *m)
{
	struct decoder d = decoder_of(f);

	m->level = take_u8(&d.r);
	need(&d, m->level <= LOG_TRACE, "level");
	take_text(&d, m->text, sizeof m->text, "text");
	return decoded(&d);
}

void msg_progress_encode(struct writer *w, const struct msg_progress *m)
{
	put_u64(w, m->bytes);
	put_u64(w, m->total);
	put_u64(w, m->files);
	put_u8(w, m->total_known);
}

int msg_progress_decode(const struct frame *f, struct msg_progress *m)
{
	struct decoder d = decoder_of(f);

	m->bytes = take_u64(&d.r);
	m->total = take_u64(&d.r);
	m->files = take_u64(&d.r);
	m->total_known = take_bool(&d, "total_known");
	return decoded(&d);
}

void msg_verdict_encode(struct writer *w, const struct msg_verdict *m)
{
	put_u8(w, m->code);
	put_str(w, m->host);
	put_str(w, m->text);
	msg_total_encode(w, &m->total);
	put_u8(w, m->transport);
	put_u16(w, m->lanes);
	put_str(w, m->how);
	put_str(w, m->why);
	put_u64(w, m->ns);
	put_u64(w, m->ns_fill);
	put_u64(w, m->ns_free);
	put_u64(w, m->ns_block);
	put_u64(w, m->ns_store);
}

int msg_verdict_decode(const struct frame *f, struct msg_verdict *m)
{
	struct decoder d = decoder_of(f);

	m->code = take_outcome(&d, true);
	take_text(&d, m->host, sizeof m->host, "host");
	take_text(&d, m->text, sizeof m->text, "text");
	total_take(&d.r, &m->total);
	m->transport = take_u8(&d.r);
	need(&d, m->transport <= TRANSPORT_SSH, "transport");
	m->lanes = take_u16(&d.r);
	need(&d, m->lanes <= LANE_COUNT_MAX, "lanes");
	take_text(&d, m->how, sizeof m->how, "how");
	take_text(&d, m->why, sizeof m->why, "why");
	m->ns = take_u64(&d.r);
	m->ns_fill = take_u64(&d.r);
	m->ns_free = take_u64(&d.r);
	m->ns_block = take_u64(&d.r);
	m->ns_store = take_u64(&d.r);
	return decoded(&d);
}

void msg_cancel_encode(struct writer *w, const struct msg_cancel *m)
{
	put_u8(w, m->signo);
}

int msg_cancel_decode(const struct frame *f, struct msg_cancel *m)
{
	struct decoder d = decoder_of(f);

	m->signo = take_u8(&d.r);
	need(&d, m->signo >= 1 && m->signo <= SIGNAL_MAX, "signo");
	return decoded(&d);
}

void msg_detour_encode(struct writer *w, const struct msg_detour *m)
{
	put_u16(w, m->port);
	put_str(w, m->why);
}

int msg_detour_decode(const struct frame *f, struct msg_detour *m)
{
	struct decoder d = decoder_of(f);

	m->port = take_u16(&d.r);
	need(&d, m->port != 0, "port");
	take_text(&d, m->why, sizeof m->why, "why");
	return decoded(&d);
}
