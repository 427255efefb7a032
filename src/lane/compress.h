/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_COMPRESS_H
#define LANE_COMPRESS_H

/*
 * Compression of single blocks with zstd: docs/protocol.md, "Compressed blocks". compress_none.c
 * takes the place of compress.c in a build without libzstd.
 */

#include <stdbool.h>
#include <stdint.h>

/* What a user wishes. AUTO: compress while that makes the transfer faster. */
enum compress_mode { COMPRESS_OFF, COMPRESS_AUTO, COMPRESS_ALWAYS, COMPRESS_MODES };
enum { COMPRESS_LEVEL = 1, COMPRESS_LEVEL_MAX = 22, COMPRESS_WISH_BITS = 7 };

/* A wish, as HELLO and START have it: the mode in two bits, then the level in five (0: the
 * default). What is none counts as OFF, which is 0. */
static inline unsigned make_compress_wish(unsigned bits)
{
	unsigned mode = bits & 3, level = bits >> 2 & 31;

	return mode < COMPRESS_MODES && mode && level <= COMPRESS_LEVEL_MAX ? level << 2 | mode : 0;
}

static inline enum compress_mode get_compress_mode(unsigned wish)
{
	return (enum compress_mode)(wish & 3);
}

static inline unsigned get_compress_level(unsigned wish)
{
	return wish >> 2 & 31 ? wish >> 2 & 31 : COMPRESS_LEVEL;
}

/* Whether this build can compress and decompress. */
bool compress_known(void);

struct compressor;
int compressor_open(unsigned level, uint32_t block_size, struct compressor **out);
void compressor_close(struct compressor *c);
/* Compresses len bytes in place. Returns the new length, or 0 if they would not become shorter:
 * then data is as it was. */
uint32_t compressor_pack(struct compressor *c, uint8_t *data, uint32_t len);

struct inflater;
int inflater_open(struct inflater **out);
void inflater_close(struct inflater *i);
/* Returns 0 if the len bytes are one frame of zstd with exactly plain_len bytes, which are then in
 * to; else -1, without a failure. Never writes more than plain_len bytes. */
int inflater_unpack(struct inflater *i, const uint8_t *from, uint32_t len, uint8_t *to,
		    uint32_t plain_len);

#endif
