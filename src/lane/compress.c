/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/compress.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include "base/fail.h"

/* What compression must save at least: less is not worth the time to decompress. */
enum { SAVES = 64 };

struct compressor {
	ZSTD_CCtx *zstd;
	uint32_t room;
	uint8_t *packed;
};

struct inflater {
	ZSTD_DCtx *zstd;
};

bool compress_known(void)
{
	return true;
}

int compressor_open(unsigned level, uint32_t block_size, struct compressor **out)
{
	struct compressor *c = calloc(1, sizeof *c);

	if (!c)
		return fail_as(OUT_MEMORY, "allocate a compressor: %m");
	c->room = block_size;
	c->packed = malloc(block_size);
	c->zstd = ZSTD_createCCtx();
	if (c->packed && c->zstd &&
	    !ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_compressionLevel, (int)level))) {
		*out = c;
		return 0;
	}
	compressor_close(c);
	return fail_as(OUT_MEMORY, "allocate a compressor of level %u", level);
}

void compressor_close(struct compressor *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->zstd);
	free(c->packed);
	free(c);
}

/* Any error, also of memory, means that the block is sent as it is. */
uint32_t compressor_pack(struct compressor *c, uint8_t *data, uint32_t len)
{
	size_t n;

	if (len <= SAVES || len > c->room)
		return 0;
	n = ZSTD_compress2(c->zstd, c->packed, len - SAVES, data, len);
	if (ZSTD_isError(n) || n == 0)
		return 0;
	memcpy(data, c->packed, n);
	return (uint32_t)n;
}

int inflater_open(struct inflater **out)
{
	struct inflater *i = calloc(1, sizeof *i);

	if (!i)
		return fail_as(OUT_MEMORY, "allocate a decompressor: %m");
	i->zstd = ZSTD_createDCtx();
	if (i->zstd) {
		*out = i;
		return 0;
	}
	free(i);
	return fail_as(OUT_MEMORY, "allocate a decompressor");
}

void inflater_close(struct inflater *i)
{
	if (!i)
		return;
	ZSTD_freeDCtx(i->zstd);
	free(i);
}

int inflater_unpack(struct inflater *i, const uint8_t *from, uint32_t len, uint8_t *to,
		    uint32_t plain_len)
{
	/* ZSTD_decompressDCtx() alone would take several frames, and such that hold nothing. */
	if (ZSTD_getFrameContentSize(from, len) != plain_len ||
	    ZSTD_findFrameCompressedSize(from, len) != len)
		return -1;
	return ZSTD_decompressDCtx(i->zstd, to, plain_len, from, len) == plain_len ? 0 : -1;
}
