/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

/*
 * Bounds-checked cursors over little-endian bytes.
 *
 * A reader that runs past its end, or a writer past its room, records the error. Later calls do
 * nothing (reads return zeros), and one check at the end suffices. So encoding or decoding a
 * message is a plain sequence of calls. A cursor does not own its bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
	const uint8_t *at;
	size_t left;
	bool bad;
};

struct reader reader_of(const void *bytes, size_t len);
uint8_t take_u8(struct reader *r);
uint16_t take_u16(struct reader *r);
uint32_t take_u32(struct reader *r);
uint64_t take_u64(struct reader *r);
void take_bytes(struct reader *r, void *to, size_t len);
/* A view of the next len bytes, valid as long as the bytes; NULL if there are fewer. */
const uint8_t *take_view(struct reader *r, size_t len);
/* A string: u16 length, then that many bytes without NUL. The reader becomes bad if the string is
 * longer than size - 1 or contains a NUL. to is always terminated. */
void take_str(struct reader *r, char *to, size_t size);
/* True if no read failed and no bytes are left. */
bool reader_done(const struct reader *r);

struct writer {
	uint8_t *base;
	size_t used;
	size_t size;
	bool full;
};

struct writer writer_of(void *room, size_t size);
void put_u8(struct writer *w, uint8_t v);
void put_u16(struct writer *w, uint16_t v);
void put_u32(struct writer *w, uint32_t v);
void put_u64(struct writer *w, uint64_t v);
void put_bytes(struct writer *w, const void *from, size_t len);
void put_str(struct writer *w, const char *s);
void put_zeros(struct writer *w, size_t len);
/* Space for len bytes that the caller fills in; NULL if there is not enough, or len is 0. */
uint8_t *put_room(struct writer *w, size_t len);

#endif
