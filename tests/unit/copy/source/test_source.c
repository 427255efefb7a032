/* SPDX-License-Identifier: Apache-2.0 */

/* What the source remembers of ids, inodes and cells; test_copy*.c test the rest of it. */

#include "copy/source/source_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- ids ------------------------------------------------------------------------------ */

static void ids_are_assigned_once(void **state)
{
	struct ids t = {0};
	uint32_t first, end, last = 0;

	(void)state;
	for (unsigned i = 0; i < 5000; i++) {
		assert_int_equal(ids_take(&t, &first, &end), 0);
		assert_int_equal(first, last + 1);
		assert_true(end > first && end - first <= IDS_AT_ONCE);
		last = end - 1;
		for (uint32_t id = first; id < end; id++)
			assert_int_equal(ids_kind(&t, id), LIVE_NONE);
	}
	assert_int_equal(ids_kind(&t, UINT32_MAX), LIVE_NONE);
	assert_null(ids_file(&t, UINT32_MAX));
	ids_free(&t, NULL, NULL);
}

static unsigned freed;

static void count_freed(void *ctx, enum live kind, struct live_file *f)
{
	(void)ctx;
	assert_int_equal(kind, LIVE_FILE);
	assert_ptr_equal(f->object, &freed);
	freed++;
}

/* Files, directories and unchanged files alternate; most are finished. */
static void finished_ids_are_forgotten(void **state)
{
	enum { IDS = 10000 };
	struct ids t = {0};
	uint32_t first, end = 1;

	(void)state;
	for (uint32_t id = 1; id <= IDS; id++) {
		static const enum live kinds[] = {LIVE_DIR, LIVE_SMALL, LIVE_SAME, LIVE_FILE};

		if (id == end)
			assert_int_equal(ids_take(&t, &first, &end), 0);
		assert_non_null(ids_file(&t, id));
		ids_file(&t, id)->size = id;
		ids_file(&t, id)->object = &freed;
		ids_set(&t, id, kinds[id % 4]);
		assert_int_equal(ids_kind(&t, id), kinds[id % 4]);
		if (id % 4 == 1) {
			assert_int_equal(ids_file(&t, id)->size, id);
			ids_settle(&t, id);
		}
		if (id % 4 == 3 && id != 7)
			ids_settle(&t, id);
	}
	for (uint32_t id = 1; id <= IDS; id++) {
		enum live kind = id == 7       ? LIVE_FILE
				 : id % 4 == 0 ? LIVE_DIR
				 : id % 4 == 2 ? LIVE_SAME
					       : LIVE_NONE;

		assert_int_equal(ids_kind(&t, id), kind);
		/* A page whose ids are all finished is freed. */
		if (id >= 1024 && id < IDS / 1024 * 1024)
			assert_null(ids_file(&t, id));
		if (id % 4 == 0)
			ids_settle(&t, id);
		if (id % 4 == 0)
			assert_int_equal(ids_kind(&t, id), LIVE_NONE);
	}
	freed = 0;
	ids_free(&t, count_freed, NULL);
	assert_int_equal(freed, 1);
}

/* ---- inodes --------------------------------------------------------------------------- */

static int meet(struct links *t, uint32_t inode, uint32_t id, struct link_group **g)
{
	struct seen seen = {.inode = {.dev = inode % 3, .ino = inode / 3}};

	return links_join(t, &seen, id, g);
}

static void first_name_of_an_inode_is_remembered(void **state)
{
	enum { INODES = 5000 };
	struct link_group *g = NULL, *h;
	struct links t = LINKS_NONE;

	(void)state;
	for (uint32_t i = 1; i <= INODES; i++) {
		assert_int_equal(meet(&t, i, i, &g), 0);
		assert_int_equal(meet(&t, i, i + INODES, &h), 1);
		assert_ptr_equal(g, h);
		assert_int_equal(g->id, i);
		assert_false(links_lead_failed(&t, g));
	}
	for (uint32_t i = 0; i < 100; i++)
		links_fail(&t, 1 + i * 37 % 100);
	for (uint32_t i = 1; i <= INODES; i++) {
		g = table_find(&t.groups, &(struct inode_key){.dev = i % 3, .ino = i / 3});
		assert_int_equal(links_lead_failed(&t, g), i <= 100);
	}
	links_free(&t);
}

static void next_name_leads_when_the_first_failed(void **state)
{
	struct link_group *g = NULL;
	struct links t = LINKS_NONE;
	uint32_t id = 1;

	(void)state;
	assert_int_equal(meet(&t, 1, id, &g), 0);
	for (; id < LEADS_MAX; id++) {
		t.round++;
		links_fail(&t, id);
		assert_true(links_lead_failed(&t, g));
		assert_int_equal(meet(&t, 1, id + 1, &g), 0);
		assert_false(links_lead_failed(&t, g));
		assert_int_equal(g->round, t.round);
		assert_int_equal(meet(&t, 1, 2000, &g), 1);
	}
	/* Only LEADS_MAX times. */
	links_fail(&t, id);
	assert_int_equal(meet(&t, 1, 3000, &g), 1);
	assert_true(links_lead_failed(&t, g));
	links_free(&t);
}

/* ---- cells ---------------------------------------------------------------------------- */

static atomic_size_t told_bytes;

static int tell(struct known_cells **t, uint64_t cell, uint16_t count, uint64_t size)
{
	static struct msg_cells m;

	m = (struct msg_cells){.file = 1, .pos = cell * CELL, .count = count};
	for (unsigned i = 0; i < count; i++)
		m.digest[i][0] = cell + i;
	return known_cells_add(t, &m, size, &told_bytes);
}

static void cells_are_found_by_position(void **state)
{
	const uint64_t size = 100 * (uint64_t)CELL + 5;
	struct known_cells *t = NULL;

	(void)state;
	assert_null(known_cells_at(NULL, 0));
	assert_int_equal(known_cells_next(NULL, 0), UINT64_MAX);
	assert_int_equal(tell(&t, 2, 3, size), 0);
	assert_int_equal(tell(&t, 5, 1, size), 0);
	assert_int_equal(tell(&t, 90, 11, size), 0);
	for (uint64_t cell = 0; cell <= 101; cell++) {
		bool there = (cell >= 2 && cell <= 5) || (cell >= 90 && cell <= 100);
		uint64_t next = there       ? cell
				: cell < 2  ? 2
				: cell < 90 ? 90
					    : UINT64_MAX / CELL + 1;
		const uint64_t *d = known_cells_at(t, cell * CELL);

		assert_int_equal(d != NULL, there);
		if (d)
			assert_int_equal(d[0], cell);
		assert_int_equal(known_cells_next(t, cell * CELL),
				 next > 101 ? UINT64_MAX : next * CELL);
	}
	known_cells_free(t);
	assert_int_equal(told_bytes, 0);
}

static void invalid_cells_are_refused(void **state)
{
	struct known_cells *t = NULL;

	(void)state;
	assert_int_equal(tell(&t, 0, 1, 0), -1);
	assert_int_equal(tell(&t, 1, 1, CELL), -1);
	assert_int_equal(tell(&t, 0, 2, CELL), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_int_equal(tell(&t, 0, 2, CELL + 1), 0);
	assert_int_equal(tell(&t, 1, 1, 10 * CELL), -1);
	assert_int_equal(tell(&t, 2, 8, 10 * CELL), 0);
	assert_int_equal(tell(&t, 2, 1, 10 * CELL), -1);
	assert_int_equal(tell(&t, 10, 1, 10 * CELL), -1);
	known_cells_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_assigned_once),
		cmocka_unit_test(finished_ids_are_forgotten),
		cmocka_unit_test(first_name_of_an_inode_is_remembered),
		cmocka_unit_test(next_name_leads_when_the_first_failed),
		cmocka_unit_test(cells_are_found_by_position),
		cmocka_unit_test(invalid_cells_are_refused),
	};

	return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}
