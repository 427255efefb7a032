/* SPDX-License-Identifier: Apache-2.0 */
/* Without libzstd: nothing is compressed, and HELLO says so. */
#include "lane/compress.h"

#include "base/fail.h"

bool compress_known(void)
{
	return false;
}

int compressor_open(unsigned level, uint32_t block_size, struct compressor **out)
{
	(void)level;
	(void)block_size;
	(void)out;
	return fail_as(OUT_TRANSPORT, "compress: built without zstd");
}

void compressor_close(struct compressor *c)
{
	(void)c;
}

uint32_t compressor_pack(struct compressor *c, uint8_t *data, uint32_t len)
{
	(void)c;
	(void)data;
	(void)len;
	return 0;
}

int inflater_open(struct inflater **out)
{
	(void)out;
	return fail_as(OUT_TRANSPORT, "decompress: built without zstd");
}

void inflater_close(struct inflater *i)
{
	(void)i;
}

int inflater_unpack(struct inflater *i, const uint8_t *from, uint32_t len, uint8_t *to,
		    uint32_t plain_len)
{
	(void)i;
	(void)from;
	(void)len;
	(void)to;
	(void)plain_len;
	return -1;
}
