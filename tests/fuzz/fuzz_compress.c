/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed blocks from a peer. Two bytes are the length before compression, less 1; the rest is
 * the frame. What is taken must come back from another compression, and so must the input itself.
 */
#include <stdlib.h>
#include <string.h>
#include "expect.h"
#include "lane/compress.h"

enum { ROOM = 65536 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct compressor *compressor;
static struct inflater *inflater;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	expect(compress_known());
	for (unsigned i = 0; i < 2; i++) {
		compressor_close(compressor);
		inflater_close(inflater);
		if (compressor_open(COMPRESS_LEVEL, ROOM, &compressor) || inflater_open(&inflater))
			abort();
	}
	return 0;
}

static void pack_and_unpack(const uint8_t *data, uint32_t len)
{
	static uint8_t packed[ROOM], back[ROOM];
	uint32_t n;

	memcpy(packed, data, len);
	n = compressor_pack(compressor, packed, len);
	if (n == 0) {
		expect(memcmp(packed, data, len) == 0);
		return;
	}
	expect(n < len);
	expect(inflater_unpack(inflater, packed, n, back, len) == 0);
	expect(memcmp(back, data, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t plain_len;
	uint8_t *plain;

	if (size < 3 || size > ROOM)
		return 0;
	plain_len = (uint32_t)(data[0] | data[1] << 8) + 1;
	data += 2;
	size -= 2;
	/* Of exactly this size, so that AddressSanitizer guards its end. */
	plain = malloc(plain_len);
	if (!plain)
		abort();
	if (inflater_unpack(inflater, data, (uint32_t)size, plain, plain_len) == 0)
		pack_and_unpack(plain, plain_len);
	free(plain);
	pack_and_unpack(data, (uint32_t)size);
	return 0;
}
