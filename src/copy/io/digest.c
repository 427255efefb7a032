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
	bool tracks_nonzero; /* nonzero_sum and cell_is_zero are kept */
	uint64_t nonzero_sum[2]; /* of cells that are not all zero */
	bool in_cell; /* a cell is incomplete: */
	bool cell_is_zero; /* all its bytes so far are zero */
	uint64_t cell; /* its position */
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
	d->nonzero_sum[0] = 0;
	d->nonzero_sum[1] = 0;
	d->in_cell = false;
}

void digest_track_nonzero(struct digest *d)
{
	d->tracks_nonzero = true;
}

bool bytes_are_zero(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	return len == 0 || (at[0] == 0 && memcmp(at, at + 1, len - 1) == 0);
}

static void add_cell(struct digest *d, const uint64_t hash[2], bool zero)
{
	sum_add(d->sum, hash);
	if (d->tracks_nonzero && !zero)
		sum_add(d->nonzero_sum, hash);
}

static void end_cell(struct digest *d)
{
	if (d->in_cell) {
		XXH128_hash_t h = XXH3_128bits_digest(d->state);

		add_cell(d, (const uint64_t[2]){h.low64, h.high64}, d->cell_is_zero);
	}
	d->in_cell = false;
}

void digest_add(struct digest *d, uint64_t pos, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len > 0) {
		uint64_t cell = pos - pos % CELL;
		size_t room = (size_t)(cell + CELL - pos);
		size_t n = len < room ? len : room;

		if (d->in_cell && d->cell != cell)
			end_cell(d);
		if (!d->in_cell && n == CELL) {
			uint64_t hash[2];

			cell_hash_of(cell, at, n, hash);
			add_cell(d, hash, d->tracks_nonzero && bytes_are_zero(at, n));
		} else {
			if (!d->in_cell)
				XXH3_128bits_reset_withSeed(d->state, cell);
			d->cell_is_zero = (!d->in_cell || d->cell_is_zero) && d->tracks_nonzero &&
					  bytes_are_zero(at, n);
			d->in_cell = true;
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

static unsigned count_zero_cells(const struct block *b)
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

	if (whole && d->tracks_nonzero)
		zeros = count_zero_cells(b);
	/* If only some cells are zero, b->hash does not give the sum of the others. */
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

void digest_nonzero_sum(const struct digest *d, uint64_t out[2])
{
	out[0] = d->nonzero_sum[0];
	out[1] = d->nonzero_sum[1];
}
