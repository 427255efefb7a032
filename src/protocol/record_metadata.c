/* SPDX-License-Identifier: Apache-2.0 */

/* Records without bytes of a file: directories and the names in them, owners, extended attributes,
 * origins. */

#include "protocol/message.h"
#include "protocol/record_impl.h"

#include <string.h>

/* The smallest block has room for each record, or for one piece of a record that can be split. */
#define FITS(size) ((size_t)(size) <= LANE_BLOCK_MIN)
_Static_assert(FITS(RECORD_FILE_MAX), "FILE does not fit a block");
_Static_assert(FITS(RECORD_FILE_END_MAX), "FILE_END does not fit a block");
_Static_assert(FITS(RECORD_DIR_MAX), "DIR does not fit a block");
_Static_assert(FITS(RECORD_OWNER_MAX), "OWNER does not fit a block");
_Static_assert(FITS(RECORD_XATTR_HEAD_MAX + 1), "no piece of an XATTR fits a block");
_Static_assert(FITS(RECORD_KEEP_HEAD + NAME_ROOM), "no name of a KEEP fits a block");

void record_dir_encode(struct writer *w, const struct record_dir *r)
{
	struct open_record o = record_begin(w, RECORD_DIR);

	put_u32(w, r->id);
	put_u32(w, r->want);
	put_u32(w, r->parent);
	put_u32(w, r->flags);
	attr_put(w, &r->a);
	put_str(w, r->name);
	record_finish(w, o);
}

int record_dir_decode(struct decoder *d, struct record_dir *r)
{
	bool contents;

	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->want = take_u32(&d->r);
	r->parent = take_u32(&d->r);
	decoder_require(d, r->parent != r->id, "parent");
	r->flags = take_u32(&d->r);
	contents = r->flags & DIR_CONTENTS;
	decoder_require(d, (r->flags & ~(uint32_t)DIR_FLAGS_ALL) == 0 && !(contents && r->parent),
			"flags");
	attr_take(d, &r->a);
	component_take(d, r->name);
	decoder_require(d, contents == (r->name[0] == '\0'), "name");
	return decoder_finish(d);
}

void record_owner_encode(struct writer *w, const struct record_owner *r)
{
	struct open_record o = record_begin(w, RECORD_OWNER);

	put_u8(w, r->group);
	put_u32(w, r->id);
	put_str(w, r->name);
	record_finish(w, o);
}

int record_owner_decode(struct decoder *d, struct record_owner *r)
{
	r->group = take_bool(d, "group");
	r->id = take_u32(&d->r);
	take_text(d, r->name, sizeof r->name, "name");
	decoder_require(d, r->name[0] != '\0', "name");
	return decoder_finish(d);
}

void record_xattr_encode(struct writer *w, const struct record_xattr *r)
{
	struct open_record o = record_begin(w, RECORD_XATTR);

	put_u32(w, r->id);
	put_u32(w, r->size);
	put_u32(w, r->pos);
	put_str(w, r->name);
	put_bytes(w, r->bytes, r->len);
	record_finish(w, o);
}

int record_xattr_decode(struct decoder *d, struct record_xattr *r)
{
	r->id = take_u32(&d->r);
	decoder_require(d, r->id != 0, "id");
	r->size = take_u32(&d->r);
	decoder_require(d, r->size <= XATTR_VALUE_MAX, "size");
	r->pos = take_u32(&d->r);
	decoder_require(d, r->pos <= r->size, "pos");
	take_text(d, r->name, sizeof r->name, "name");
	decoder_require(d, r->name[0] != '\0', "name");
	r->len = (uint32_t)d->r.left;
	r->bytes = take_view(&d->r, d->r.left);
	decoder_require(d,
			d->wrong || (r->len <= r->size - r->pos && (r->len > 0) == (r->size > 0)),
			"bytes");
	return decoder_finish(d);
}

void record_keep_encode(struct writer *w, const struct record_keep *r)
{
	struct open_record o = record_begin(w, RECORD_KEEP);

	put_u32(w, r->dir);
	put_u8(w, r->last);
	put_bytes(w, r->names.at, r->names.left);
	record_finish(w, o);
}

void record_origin_encode(struct writer *w, const struct record_origin *r)
{
	struct open_record o = record_begin(w, RECORD_ORIGIN);

	put_u32(w, r->want);
	put_u32(w, r->parent);
	put_u8(w, r->dir);
	put_u64(w, r->hash[0]);
	put_u64(w, r->hash[1]);
	put_str(w, r->name);
	record_finish(w, o);
}

int record_origin_decode(struct decoder *d, struct record_origin *r)
{
	r->want = take_u32(&d->r);
	r->parent = take_u32(&d->r);
	r->dir = take_bool(d, "dir");
	r->hash[0] = take_u64(&d->r);
	r->hash[1] = take_u64(&d->r);
	component_take(d, r->name);
	decoder_require(d, r->dir || r->name[0] != '\0', "name");
	return decoder_finish(d);
}

/* Checks all names, so that record_keep_next() does not fail later. */
int record_keep_decode(struct decoder *d, struct record_keep *r)
{
	char name[NAME_ROOM];
	struct reader names;

	r->dir = take_u32(&d->r);
	decoder_require(d, r->dir != 0, "dir");
	r->last = take_bool(d, "last");
	names = reader_of(d->r.at, d->r.left);
	decoder_require(d, r->last || names.left > 0, "names");
	r->names = names;
	while (!d->wrong && names.left > 0)
		decoder_require(d, record_keep_next(&names, name) > 0, "names");
	take_view(&d->r, d->r.left);
	return decoder_finish(d);
}

bool record_keep_add(struct writer *names, const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len >= NAME_ROOM || names->full || len + 1 > names->size - names->used)
		return false;
	put_u8(names, (uint8_t)len);
	put_bytes(names, name, len);
	return true;
}

int record_keep_next(struct reader *names, char name[static NAME_ROOM])
{
	size_t len;

	if (names->left == 0 && !names->bad)
		return 0;
	len = take_u8(names);
	take_bytes(names, name, len);
	name[len] = '\0';
	if (names->bad || len == 0 || memchr(name, '\0', len) || memchr(name, '/', len) ||
	    strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return fail_as(OUT_PROTOCOL, "malformed KEEP record from the peer: names");
	return 1;
}
