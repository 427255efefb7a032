/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_ids.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"

enum { PAGE = 1024 /* ids, a multiple of IDS_AT_ONCE */, WORD = 64 };

struct id_page {
	struct id_files *files; /* NULL: all ids are settled */
	unsigned unsettled; /* ids */
	uint64_t dirs[PAGE / WORD], sames[PAGE / WORD];
};
struct id_files {
	uint8_t kind[PAGE];
	struct live_file file[PAGE];
};

static struct id_page *page_of(const struct ids *t, uint32_t id)
{
	return id / PAGE < t->count ? &t->pages[id / PAGE] : NULL;
}

static int add_page(struct ids *t)
{
	struct id_page *p;

	if (ARRAY_ROOM(t->pages, t->count, t->room, 1))
		return fail_as(OUT_MEMORY, "allocate the table of files: %m");
	p = &t->pages[t->count];
	*p = (struct id_page){.files = calloc(1, sizeof *p->files), .unsettled = PAGE};
	if (!p->files)
		return fail_as(OUT_MEMORY, "allocate the table of files: %m");
	t->count++;
	return 0;
}

int ids_take(struct ids *t, uint32_t *first, uint32_t *end)
{
	uint32_t from = t->last + 1;

	if (from > UINT32_MAX - 2 * IDS_AT_ONCE)
		return fail("too many files for one run");
	/* Up to a multiple, so that all of them are in one page. */
	*end = (from / IDS_AT_ONCE + 1) * IDS_AT_ONCE;
	while (from / PAGE >= t->count) {
		if (add_page(t))
			return -1;
	}
	*first = from;
	t->last = *end - 1;
	return 0;
}

static bool has_bit(const uint64_t *bits, uint32_t id)
{
	return bits[id % PAGE / WORD] & (UINT64_C(1) << (id % WORD));
}

enum live ids_kind(const struct ids *t, uint32_t id)
{
	const struct id_page *p = page_of(t, id);

	if (!p)
		return LIVE_NONE;
	if (has_bit(p->dirs, id))
		return LIVE_DIR;
	if (has_bit(p->sames, id))
		return LIVE_SAME;
	return p->files ? (enum live)p->files->kind[id % PAGE] : LIVE_NONE;
}

/* One more id of the page is settled. */
static void finish_page_id(struct id_page *p)
{
	if (--p->unsettled > 0)
		return;
	free(p->files);
	p->files = NULL;
}

void ids_set(struct ids *t, uint32_t id, enum live kind)
{
	struct id_page *p = page_of(t, id);
	uint64_t bit = UINT64_C(1) << (id % WORD);

	p->files->kind[id % PAGE] =
		kind == LIVE_DIR || kind == LIVE_SAME ? LIVE_NONE : (uint8_t)kind;
	if (kind == LIVE_DIR)
		p->dirs[id % PAGE / WORD] |= bit;
	else if (kind == LIVE_SAME)
		p->sames[id % PAGE / WORD] |= bit;
	else
		return;
	finish_page_id(p);
}

struct live_file *ids_file(struct ids *t, uint32_t id)
{
	struct id_page *p = page_of(t, id);

	return p && p->files ? &p->files->file[id % PAGE] : NULL;
}

void ids_settle(struct ids *t, uint32_t id)
{
	struct id_page *p = page_of(t, id);
	uint64_t bit = UINT64_C(1) << (id % WORD);

	if (has_bit(p->dirs, id) || has_bit(p->sames, id)) {
		p->dirs[id % PAGE / WORD] &= ~bit;
		p->sames[id % PAGE / WORD] &= ~bit;
		return;
	}
	p->files->kind[id % PAGE] = LIVE_NONE;
	finish_page_id(p);
}

void ids_free(struct ids *t, void (*each)(void *ctx, enum live kind, struct live_file *f),
	      void *ctx)
{
	for (uint32_t i = 0; i < t->count; i++) {
		struct id_files *files = t->pages[i].files;

		for (uint32_t k = 0; files && k < PAGE; k++) {
			if (files->kind[k])
				each(ctx, (enum live)files->kind[k], &files->file[k]);
		}
		free(files);
	}
	free(t->pages);
	*t = (struct ids){0};
}
