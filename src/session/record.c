/* SPDX-License-Identifier: Apache-2.0 */
#include "session/message.h"
#include "session/decoder.h"

#include <string.h>

enum {
	MODE_MASK = 07777,
	SECOND_NS = 1000000000,
};

/* The head's length is not known before the body is written: head first with zero, then this. */
struct opened {
	uint8_t *len_at;
	size_t body_from;
};

static struct opened record_begin(struct writer *w, enum record_type type)
{
	struct opened o;

	put_u8(w, (uint8_t)type);
	put_zeros(w, 3);
	o.len_at = w->base + w->used;
	put_u32(w, 0);
	o.body_from = w->used;
	return o;
}

static void record_finish(struct writer *w, struct opened o)
{
	struct writer len;

	if (w->full)
		return;
	len = writer_of(o.len_at, sizeof(uint32_t));
	put_u32(&len, (uint32_t)(w->used - o.body_from));
}

void record_file_encode(struct writer *w, const struct record_file *r)
{
	struct opened o = record_begin(w, RECORD_FILE);

	put_u32(w, r->id);
	put_u32(w, r->want);
	put_u32(w, r->flags);
	put_u32(w, r->mode);
	put_u64(w, r->size);
	put_u64(w, (uint64_t)r->mtime_s);
	put_u64(w, (uint64_t)r->atime_s);
	put_u32(w, r->mtime_ns);
	put_u32(w, r->atime_ns);
	put_str(w, r->name);
	record_finish(w, o);
}

static int record_file_decode(struct decoder *d, struct record_file *r)
{
	r->id = take_u32(&d->r);
	need(d, r->id != 0, "id");
	r->want = take_u32(&d->r);
	r->flags = take_u32(&d->r);
	need(d, (r->flags & ~(uint32_t)FILE_FLAGS_ALL) == 0, "flags");
	r->mode = take_u32(&d->r);
	need(d, (r->mode & ~(uint32_t)MODE_MASK) == 0, "mode");
	r->size = take_u64(&d->r);
	need(d, r->size <= INT64_MAX && !((r->flags & FILE_STREAM) && r->size), "size");
	r->mtime_s = (int64_t)take_u64(&d->r);
	r->atime_s = (int64_t)take_u64(&d->r);
	r->mtime_ns = take_u32(&d->r);
	need(d, r->mtime_ns < SECOND_NS, "mtime_ns");
	r->atime_ns = take_u32(&d->r);
	need(d, r->atime_ns < SECOND_NS, "atime_ns");
	take_text(d, r->name, sizeof r->name, "name");
	return decoded(d);
}

void record_data_encode(struct writer *w, const struct record_data *r)
{
	struct opened o = record_begin(w, RECORD_DATA);

	put_u32(w, r->id);
	put_u64(w, r->pos);
	put_bytes(w, r->bytes, r->len);
	record_finish(w, o);
}

static int record_data_decode(struct decoder *d, struct record_data *r)
{
	r->id = take_u32(&d->r);
	need(d, r->id != 0, "id");
	r->pos = take_u64(&d->r);
	r->len = (uint32_t)d->r.left;
	r->bytes = take_view(&d->r, r->len);
	need(d, r->pos <= (uint64_t)INT64_MAX - r->len, "pos");
	return decoded(d);
}

void record_hole_encode(struct writer *w, const struct record_hole *r)
{
	struct opened o = record_begin(w, RECORD_HOLE);

	put_u32(w, r->id);
	put_u64(w, r->pos);
	put_u64(w, r->len);
	record_finish(w, o);
}

static int record_hole_decode(struct decoder *d, struct record_hole *r)
{
	r->id = take_u32(&d->r);
	need(d, r->id != 0, "id");
	r->pos = take_u64(&d->r);
	need(d, r->pos <= INT64_MAX, "pos");
	r->len = take_u64(&d->r);
	need(d, r->len > 0 && r->len <= (uint64_t)INT64_MAX - r->pos, "len");
	return decoded(d);
}

void record_file_end_encode(struct writer *w, const struct record_file_end *r)
{
	struct opened o = record_begin(w, RECORD_FILE_END);

	put_u32(w, r->id);
	put_u64(w, r->size);
	put_u64(w, r->data);
	put_u64(w, r->holes);
	put_u16(w, r->lanes);
	put_u64(w, r->digest[0]);
	put_u64(w, r->digest[1]);
	put_u8(w, r->code);
	put_str(w, r->text);
	record_finish(w, o);
}

static int record_file_end_decode(struct decoder *d, struct record_file_end *r)
{
	r->id = take_u32(&d->r);
	need(d, r->id != 0, "id");
	r->size = take_u64(&d->r);
	need(d, r->size <= INT64_MAX, "size");
	r->data = take_u64(&d->r);
	r->holes = take_u64(&d->r);
	need(d, r->data <= INT64_MAX && r->holes <= INT64_MAX, "holes");
	r->lanes = take_u16(&d->r);
	need(d, r->lanes <= LANE_COUNT_MAX, "lanes");
	r->digest[0] = take_u64(&d->r);
	r->digest[1] = take_u64(&d->r);
	r->code = take_outcome(d, true);
	need(d, r->code != OUT_DONE || r->data + r->holes <= r->size, "data");
	take_text(d, r->text, sizeof r->text, "text");
	return decoded(d);
}

static int record_body(struct reader body, uint8_t type, struct record *out)
{
	struct decoder d = {.r = body};

	switch (type) {
	case RECORD_FILE:
		out->type = RECORD_FILE;
		d.what = "FILE record";
		return record_file_decode(&d, &out->file);
	case RECORD_DATA:
		out->type = RECORD_DATA;
		d.what = "DATA record";
		return record_data_decode(&d, &out->data);
	case RECORD_HOLE:
		out->type = RECORD_HOLE;
		d.what = "HOLE record";
		return record_hole_decode(&d, &out->hole);
	case RECORD_FILE_END:
		out->type = RECORD_FILE_END;
		d.what = "FILE_END record";
		return record_file_end_decode(&d, &out->end);
	default:
		return fail_as(OUT_PROTOCOL, "malformed block from the peer: unknown record %u",
			       type);
	}
}

int record_next(struct reader *r, struct record *out)
{
	const uint8_t *body;
	uint8_t type;
	uint32_t len;

	if (r->left == 0 && !r->bad)
		return 0;
	type = take_u8(r);
	if (take_u8(r) || take_u16(r))
		return fail_as(OUT_PROTOCOL, "malformed block from the peer: padding of a record");
	len = take_u32(r);
	body = take_view(r, len);
	if (r->bad)
		return fail_as(OUT_PROTOCOL, "malformed block from the peer: record cut short");
	return record_body(reader_of(body, len), type, out) ? -1 : 1;
}
