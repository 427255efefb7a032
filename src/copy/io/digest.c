/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/digest.h"

#include <stdlib.h>
#include <string.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
#include "base/fail.h"

struct digest {
	uint64_t sum[2];
	bool watch;
	uint64_t solid[2]; /* watch: of cells that are not all zero */
	bool open; /* in the middle of a cell */
	bool zero; /* which is all zero until now; watch */
	uint64_t cell; /* where it starts */
	XXH3_state_t *state;
};

struct digest *digest_new(void)
{
	struct digest *d = calloc(1, sizeof *d);

	if (d)
		d->state = XXH3_createState();
	if (!d || !d->state) {
		digest_free(d);
		fail_as(OUT_MEMORY, "allocate a digest: %m");
		return NULL;
	}
	return d;
}

void digest_free(struct digest *d)
{
	if (!d)
		return;
	XXH3_freeState(d->state);
	free(d);
}

void digest_reset(struct digest *d)
{
	d->sum[0] = 0;
	d->sum[1] = 0;
	d->solid[0] = 0;
	d->solid[1] = 0;
	d->open = false;
}

void digest_watch(struct digest *d)
{
	d->watch = true;
}

bool bytes_are_zero(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	return len == 0 || (at[0] == 0 && memcmp(at, at + 1, len - 1) == 0);
}

static void add_cell(struct digest *d, const uint64_t hash[2], bool zero)
{
	sum_add(d->sum, hash);
	if (d->watch && !zero)
		sum_add(d->solid, hash);
}

static void end_cell(struct digest *d)
{
	if (d->open) {
		XXH128_hash_t h = XXH3_128bits_digest(d->state);

		add_cell(d, (const uint64_t[2]){h.low64, h.high64}, d->zero);
	}
	d->open = false;
}

void digest_add(struct digest *d, uint64_t pos, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len > 0) {
		uint64_t cell = pos - pos % CELL;
		size_t room = (size_t)(cell + CELL - pos);
		size_t n = len < room ? len : room;

		if (d->open && d->cell != cell)
			end_cell(d);
		if (!d->open && n == CELL) {
			uint64_t hash[2];

			cells_hash(cell, at, n, hash);
			add_cell(d, hash, d->watch && bytes_are_zero(at, n));
		} else {
			if (!d->open)
				XXH3_128bits_reset_withSeed(d->state, cell);
			d->zero = (!d->open || d->zero) && d->watch && bytes_are_zero(at, n);
			d->open = true;
			d->cell = cell;
			XXH3_128bits_update(d->state, at, n);
			if (n == room)
				end_cell(d);
		}
		pos += n;
		at += n;
		len -= n;
	}
}

/* How many of its cells are all zero. */
static unsigned count_zeros(const struct block *b)
{
	unsigned zeros = 0;

	for (uint32_t at = 0; at < b->len; at += CELL)
		zeros += bytes_are_zero(b->data + at, b->len - at < CELL ? b->len - at : CELL);
	return zeros;
}

void digest_add_block(struct digest *d, const struct block *b, bool last)
{
	bool whole = b->len > 0 && b->pos % CELL == 0 && (last || b->len % CELL == 0);
	unsigned cells = (b->len + CELL - 1) / CELL, zeros = 0;

	if (whole && d->watch)
		zeros = count_zeros(b);
	/* Of some zeros and some others only the sum is known. */
	if (whole && (zeros == 0 || zeros == cells)) {
		end_cell(d);
		add_cell(d, b->hash, zeros > 0);
	} else {
		digest_add(d, b->pos, b->data, b->len);
	}
}

void digest_sum(struct digest *d, uint64_t out[2])
{
	end_cell(d);
	out[0] = d->sum[0];
	out[1] = d->sum[1];
}

void digest_solid(const struct digest *d, uint64_t out[2])
{
	out[0] = d->solid[0];
	out[1] = d->solid[1];
}
