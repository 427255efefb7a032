/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cursor.h"

#include <string.h>

struct reader reader_of(const void *bytes, size_t len)
{
	return (struct reader){.at = bytes, .left = len};
}

const uint8_t *take_view(struct reader *r, size_t len)
{
	const uint8_t *at = r->at;

	if (r->bad || len > r->left) {
		r->bad = true;
		return NULL;
	}
	if (len > 0)
		r->at += len;
	r->left -= len;
	return at;
}

static uint64_t take_uint(struct reader *r, unsigned size)
{
	const uint8_t *at = take_view(r, size);
	uint64_t v = 0;

	if (!at)
		return 0;
	for (unsigned i = 0; i < size; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

uint8_t take_u8(struct reader *r)
{
	return (uint8_t)take_uint(r, 1);
}

uint16_t take_u16(struct reader *r)
{
	return (uint16_t)take_uint(r, 2);
}

uint32_t take_u32(struct reader *r)
{
	return (uint32_t)take_uint(r, 4);
}

uint64_t take_u64(struct reader *r)
{
	return take_uint(r, 8);
}

void take_bytes(struct reader *r, void *to, size_t len)
{
	const uint8_t *at = take_view(r, len);

	if (len == 0)
		return;
	if (at)
		memcpy(to, at, len);
	else
		memset(to, 0, len);
}

void take_str(struct reader *r, char *to, size_t size)
{
	size_t len = take_u16(r);
	const uint8_t *at;

	to[0] = '\0';
	if (len >= size)
		r->bad = true;
	at = take_view(r, len);
	if (!at || len == 0)
		return;
	if (memchr(at, '\0', len)) {
		r->bad = true;
		return;
	}
	memcpy(to, at, len);
	to[len] = '\0';
}

bool reader_done(const struct reader *r)
{
	return !r->bad && r->left == 0;
}

struct writer writer_of(void *room, size_t size)
{
	return (struct writer){.base = room, .size = size};
}

uint8_t *put_room(struct writer *w, size_t len)
{
	uint8_t *at;

	if (w->full || len > w->size - w->used) {
		w->full = true;
		return NULL;
	}
	if (len == 0)
		return NULL;
	at = w->base + w->used;
	w->used += len;
	return at;
}

static void put_uint(struct writer *w, uint64_t v, unsigned size)
{
	uint8_t *at = put_room(w, size);

	if (!at)
		return;
	for (unsigned i = 0; i < size; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

void put_u8(struct writer *w, uint8_t v)
{
	put_uint(w, v, 1);
}

void put_u16(struct writer *w, uint16_t v)
{
	put_uint(w, v, 2);
}

void put_u32(struct writer *w, uint32_t v)
{
	put_uint(w, v, 4);
}

void put_u64(struct writer *w, uint64_t v)
{
	put_uint(w, v, 8);
}

void put_bytes(struct writer *w, const void *from, size_t len)
{
	uint8_t *at = put_room(w, len);

	if (at)
		memcpy(at, from, len);
}

void put_str(struct writer *w, const char *s)
{
	size_t len = strlen(s);

	if (len > UINT16_MAX) {
		w->full = true;
		return;
	}
	put_u16(w, (uint16_t)len);
	put_bytes(w, s, len);
}

void put_zeros(struct writer *w, size_t len)
{
	uint8_t *at = put_room(w, len);

	if (at)
		memset(at, 0, len);
}
