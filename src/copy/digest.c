/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/digest.h"

#include <stdlib.h>
#include <xxhash.h>
#include "base/fail.h"

struct digest {
	uint64_t sum[2];
	bool open; /* in the middle of a cell */
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
	d->open = false;
}

void sum_add(uint64_t to[2], const uint64_t from[2])
{
	to[0] += from[0];
	to[1] += from[1] + (to[0] < from[0]);
}

static void add_hash(struct digest *d, XXH128_hash_t h)
{
	uint64_t hash[2] = {h.low64, h.high64};

	sum_add(d->sum, hash);
}

static void end_cell(struct digest *d)
{
	if (d->open)
		add_hash(d, XXH3_128bits_digest(d->state));
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
			add_hash(d, XXH3_128bits_withSeed(at, n, cell));
		} else {
			if (!d->open)
				XXH3_128bits_reset_withSeed(d->state, cell);
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

void digest_add_block(struct digest *d, const struct block *b, bool last)
{
	bool whole = b->len == CELL || (last && b->len > 0 && b->len < CELL);

	if (b->pos % CELL == 0 && whole) {
		end_cell(d);
		sum_add(d->sum, b->hash);
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
