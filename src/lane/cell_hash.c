/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/cell_hash.h"

#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

void sum_add(uint64_t to[static 2], const uint64_t from[static 2])
{
	to[0] += from[0];
	to[1] += from[1] + (to[0] < from[0]);
}

void cell_hash_of(uint64_t pos, const void *bytes, size_t len, uint64_t out[static 2])
{
	const uint8_t *at = bytes;

	out[0] = 0;
	out[1] = 0;
	do {
		size_t room = CELL - pos % CELL;
		size_t n = len < room ? len : room;
		XXH128_hash_t h = XXH3_128bits_withSeed(at, n, pos);

		sum_add(out, (const uint64_t[2]){h.low64, h.high64});
		pos += n;
		at += n;
		len -= n;
	} while (len > 0);
}
