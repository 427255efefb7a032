/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_known_cells.h"

#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"
#include "copy/io/digest.h"
#include "lane/fault.h"

enum { RUN_COST = 96 /* bytes of memory for a run, besides its digests */ };

/* Consecutive cells. */
struct cell_run {
	uint64_t pos;
	uint32_t count;
	uint64_t (*digest)[2];
};

struct known_cells {
	size_t count, room;
	struct cell_run *runs; /* ascending */
	atomic_size_t *total_bytes; /* of the known cells of all files */
	size_t bytes; /* of these */
	bool truncated;
};

static uint64_t get_run_end(const struct cell_run *r)
{
	return r->pos + (uint64_t)r->count * CELL;
}

/* After the first cells that exceed the limit no more cells of that file are kept. */
static bool account_kept_bytes(struct known_cells *c, size_t bytes)
{
	if (!c->truncated) {
		c->truncated = atomic_fetch_add(c->total_bytes, bytes) + bytes >
			       fault_bound(KNOWN_CELLS_BYTES_MAX);
		if (c->truncated)
			atomic_fetch_sub(c->total_bytes, bytes);
		else
			c->bytes += bytes;
	}
	return !c->truncated;
}

bool known_cells_is_cut(const struct known_cells *c)
{
	return c && c->truncated;
}

int known_cells_add(struct known_cells **c, const struct msg_cells *m, uint64_t size,
		    atomic_size_t *total_bytes)
{
	struct cell_run r = {.pos = m->pos, .count = m->count};
	size_t bytes = m->count * sizeof *r.digest;
	uint64_t min_pos = 0;

	if (*c && (*c)->count > 0)
		min_pos = get_run_end(&(*c)->runs[(*c)->count - 1]);
	if (m->pos < min_pos || m->pos >= size || (m->count - 1) * (uint64_t)CELL >= size - m->pos)
		return fail_as(OUT_PROTOCOL,
			       "the peer sends digests of cells that the file does not have");
	if (!*c && !(*c = calloc(1, sizeof **c)))
		return fail_as(OUT_MEMORY, "keep digests of cells: %m");
	(*c)->total_bytes = total_bytes;
	if (!account_kept_bytes(*c, RUN_COST + bytes))
		return 0;
	r.digest = malloc(bytes);
	if (!r.digest || ARRAY_ROOM((*c)->runs, (*c)->count, (*c)->room, 1)) {
		free(r.digest);
		return fail_as(OUT_MEMORY, "keep digests of cells: %m");
	}
	memcpy(r.digest, m->digest, bytes);
	(*c)->runs[(*c)->count++] = r;
	return 0;
}

void known_cells_free(struct known_cells *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->count; i++)
		free(c->runs[i].digest);
	if (c->bytes > 0)
		atomic_fetch_sub(c->total_bytes, c->bytes);
	free(c->runs);
	free(c);
}

/* The first run that ends behind pos. */
static const struct cell_run *find_run(const struct known_cells *c, uint64_t pos)
{
	size_t from = 0, to = c ? c->count : 0;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (get_run_end(&c->runs[mid]) <= pos)
			from = mid + 1;
		else
			to = mid;
	}
	return c && from < c->count ? &c->runs[from] : NULL;
}

const uint64_t *known_cells_at(const struct known_cells *c, uint64_t pos)
{
	const struct cell_run *r = find_run(c, pos);

	return r && r->pos <= pos ? r->digest[(pos - r->pos) / CELL] : NULL;
}

uint64_t known_cells_next(const struct known_cells *c, uint64_t pos)
{
	const struct cell_run *r = find_run(c, pos);

	if (!r)
		return UINT64_MAX;
	return r->pos > pos ? r->pos : pos - pos % CELL;
}
