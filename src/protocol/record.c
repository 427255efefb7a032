/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/message.h"
#include "protocol/record_impl.h"

#include <string.h>

enum {
	MODE_MASK = 07777,
	SECOND_NS = 1000000000,
};

struct open_record record_begin(struct writer *w, enum record_type type)
{
	struct open_record o;

	put_u8(w, (uint8_t)type);
	put_zeros(w, 3);
	o.len_at = w->base + w->used;
	put_u32(w, 0);
	o.body_from = w->used;
	return o;
}

void record_finish(struct writer *w, struct open_record o)
{
	struct writer len;

	if (w->full)
		return;
	len = writer_of(o.len_at, sizeof(uint32_t));
	put_u32(&len, (uint32_t)(w->used - o.body_from));
}

void attr_put(struct writer *w, const struct record_attr *a)
{
	put_u32(w, a->mode);
	put_u32(w, a->uid);
	put_u32(w, a->gid);
	put_u64(w, (uint64_t)a->mtime_s);
	put_u64(w, (uint64_t)a->atime_s);
	put_u32(w, a->mtime_ns);
	put_u32(w, a->atime_ns);
}

void attr_take(struct decoder *d, struct record_attr *a)
{
	a->mode = take_u32(&d->r);
	decoder_require(d, (a->mode & ~(uint32_t)MODE_MASK) == 0, "mode");
	a->uid = take_u32(&d->r);
	a->gid = take_u32(&d->r);
	a->mtime_s = (int64_t)take_u64(&d->r);
	a->atime_s = (int64_t)take_u64(&d->r);
	a->mtime_ns = take_u32(&d->r);
	decoder_require(d, a->mtime_ns < SECOND_NS, "mtime_ns");
	a->atime_ns = take_u32(&d->r);
	decoder_require(d, a->atime_ns < SECOND_NS, "atime_ns");
}

void component_take(struct decoder *d, char name[static NAME_ROOM])
{
	take_text(d, name, NAME_ROOM, "name");
	decoder_require(d, !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0,
			"name");
}

void record_file_encode(struct writer *w, const struct record_file *r)
{
	struct open_record o = record_begin(w, RECORD_FILE);

	put_u32(w, r->id);
	put_u32(w, r->want);
	put_u32(w, r->dir);
	put_u32(w, r->flags);
	put_u8(w, r->type);
	put_u64(w, r->size);
	attr_put(w, &r->a);
	put_u32(w, r->major);
	put_u32(w, r->minor);
	put_u32(w, r->link_to);
	put_str(w, r->name);
	record_finish(w, o);
}

/* Flags that only regular files may have. */
enum { FILE_REGULAR = FILE_STREAM | FILE_ORDERED | FILE_SPARSE | FILE_ASK | FILE_MAY };

static bool file_flags_fit(const struct record_file *r)
{
	if (r->flags & ~(uint32_t)FILE_FLAGS_ALL)
		return false;
	if ((r->flags & FILE_ASK) && (r->flags & FILE_STREAM))
		return false;
	if ((r->flags & FILE_MAY) && !(r->flags & FILE_ASK))
		return false;
	if ((r->flags & FILE_LINKED) && r->type == TYPE_HARD_LINK)
		return false;
	return r->type == TYPE_REGULAR || (r->flags & FILE_REGULAR) == 0;
}

static bool file_size_fits(const struct record_file *r)
{
	if (r->type == TYPE_SYMLINK)
		return r->size >= 1 && r->size <= LINK_TARGET_MAX;
	if (r->type != TYPE_REGULAR || (r->flags & FILE_STREAM))
		return r->size == 0;
	return r->size <= INT64_MAX;
}

static int record_file_decode(struct decoder *d, struct record_file *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->want = take_u32(&d->r);
	r->dir = take_u32(&d->r);
	decoder_require(d, r->dir != r->id, "dir");
	r->flags = take_u32(&d->r);
	r->type = take_u8(&d->r);
	decoder_require(d, r->type >= TYPE_REGULAR && r->type <= TYPE_BLOCK, "type");
	decoder_require(d, file_flags_fit(r), "flags");
	r->size = take_u64(&d->r);
	decoder_require(d, file_size_fits(r), "size");
	attr_take(d, &r->a);
	r->major = take_u32(&d->r);
	r->minor = take_u32(&d->r);
	decoder_require(d,
			r->type == TYPE_CHAR || r->type == TYPE_BLOCK || (!r->major && !r->minor),
			"device");
	r->link_to = take_u32(&d->r);
	decoder_require(d, (r->type == TYPE_HARD_LINK) == (r->link_to != 0) && r->link_to != r->id,
			"link_to");
	component_take(d, r->name);
	return decoder_finish(d);
}

void record_data_encode(struct writer *w, const struct record_data *r)
{
	struct open_record o = record_begin(w, RECORD_DATA);

	put_u32(w, r->id);
	put_u64(w, r->pos);
	put_bytes(w, r->bytes, r->len);
	record_finish(w, o);
}

uint8_t *record_data_open(struct writer *w, const struct record_data *r)
{
	struct open_record o = record_begin(w, RECORD_DATA);
	uint8_t *at;

	put_u32(w, r->id);
	put_u64(w, r->pos);
	at = put_room(w, r->len);
	record_finish(w, o);
	return at;
}

static int record_data_decode(struct decoder *d, struct record_data *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->pos = take_u64(&d->r);
	r->len = (uint32_t)d->r.left;
	r->bytes = take_view(&d->r, r->len);
	decoder_require(d, r->pos <= (uint64_t)INT64_MAX - r->len, "pos");
	return decoder_finish(d);
}

void record_hole_encode(struct writer *w, const struct record_hole *r)
{
	struct open_record o = record_begin(w, RECORD_HOLE);

	put_u32(w, r->id);
	put_u64(w, r->pos);
	put_u64(w, r->len);
	record_finish(w, o);
}

static int record_hole_decode(struct decoder *d, struct record_hole *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->pos = take_u64(&d->r);
	decoder_require(d, r->pos <= INT64_MAX, "pos");
	r->len = take_u64(&d->r);
	decoder_require(d, r->len > 0 && r->len <= (uint64_t)INT64_MAX - r->pos, "len");
	return decoder_finish(d);
}

void record_have_encode(struct writer *w, const struct record_have *r)
{
	struct open_record o = record_begin(w, RECORD_HAVE);

	put_u32(w, r->id);
	put_u64(w, r->pos);
	put_u64(w, r->len);
	record_finish(w, o);
}

static int record_have_decode(struct decoder *d, struct record_have *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->pos = take_u64(&d->r);
	decoder_require(d, r->pos <= INT64_MAX && r->pos % CELL == 0, "pos");
	r->len = take_u64(&d->r);
	decoder_require(d, r->len > 0 && r->len <= (uint64_t)INT64_MAX - r->pos, "len");
	return decoder_finish(d);
}

void record_same_encode(struct writer *w, const struct record_same *r)
{
	struct open_record o = record_begin(w, RECORD_SAME);

	put_u32(w, r->id);
	record_finish(w, o);
}

static int record_same_decode(struct decoder *d, struct record_same *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	return decoder_finish(d);
}

void record_file_end_encode(struct writer *w, const struct record_file_end *r)
{
	struct open_record o = record_begin(w, RECORD_FILE_END);

	put_u32(w, r->id);
	put_u64(w, r->size);
	put_u64(w, r->data);
	put_u64(w, r->holes);
	put_u16(w, r->lanes);
	put_u64(w, r->digest[0]);
	put_u64(w, r->digest[1]);
	put_u8(w, r->code);
	put_u8(w, r->content_len);
	put_bytes(w, r->content, r->content_len);
	put_str(w, r->text);
	record_finish(w, o);
}

static int record_end_decode(struct decoder *d, struct record_file_end *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->size = take_u64(&d->r);
	decoder_require(d, r->size <= INT64_MAX, "size");
	r->data = take_u64(&d->r);
	r->holes = take_u64(&d->r);
	decoder_require(d, r->data <= INT64_MAX && r->holes <= INT64_MAX, "holes");
	r->lanes = take_u16(&d->r);
	decoder_require(d, r->lanes <= LANE_COUNT_MAX, "lanes");
	r->digest[0] = take_u64(&d->r);
	r->digest[1] = take_u64(&d->r);
	r->code = take_outcome(d, true);
	decoder_require(d, r->code != OUT_DONE || r->data + r->holes <= r->size, "data");
	r->content_len = take_u8(&d->r);
	decoder_require(d, r->content_len <= sizeof r->content, "content");
	memset(r->content, 0, sizeof r->content);
	if (!d->wrong)
		take_bytes(&d->r, r->content, r->content_len);
	decoder_require(d, true, "content");
	take_text(d, r->text, sizeof r->text, "text");
	return decoder_finish(d);
}

#define BODY(kind, which)                                                                          \
	do {                                                                                       \
		d.what = #kind " record";                                                          \
		return record_##which##_decode(&d, &out->which);                                   \
	} while (0)

static int record_body(struct reader body, uint8_t type, struct record *out)
{
	struct decoder d = {.r = body};

	out->type = type;
	switch (type) {
	case RECORD_FILE:
		BODY(FILE, file);
	case RECORD_DATA:
		BODY(DATA, data);
	case RECORD_FILE_END:
		BODY(FILE_END, end);
	case RECORD_HOLE:
		BODY(HOLE, hole);
	case RECORD_DIR:
		BODY(DIR, dir);
	case RECORD_OWNER:
		BODY(OWNER, owner);
	case RECORD_XATTR:
		BODY(XATTR, xattr);
	case RECORD_HAVE:
		BODY(HAVE, have);
	case RECORD_SAME:
		BODY(SAME, same);
	case RECORD_KEEP:
		BODY(KEEP, keep);
	case RECORD_ORIGIN:
		BODY(ORIGIN, origin);
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
		return fail_as(OUT_PROTOCOL, "malformed block from the peer: truncated record");
	return record_body(reader_of(body, len), type, out) ? -1 : 1;
}
