/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_IDS_H
#define COPY_SOURCE_SOURCE_IDS_H

/*
 * What the source knows of each id that it assigned, until the sink's result arrives.  Ids are
 * assigned in order and settled roughly in order.  So they are kept in pages, and a page is freed
 * when all its ids are settled.  A directory, or a file that is the same, keeps one bit, because
 * the sink may report its failure as late as at the end.
 *
 * The copy's lock is held in all calls.
 */

#include <stddef.h>
#include <stdint.h>

enum live {
	LIVE_NONE, /* not assigned, or settled */
	LIVE_DIR,
	LIVE_SAME, /* a regular file that the sink already has */
	LIVE_SMALL, /* a regular file that was whole in one block */
	LIVE_OTHER, /* a symlink, hard link, device or FIFO */
	LIVE_FILE, /* a file of several blocks: object is its source_file */
	LIVE_ASKED, /* the sink was asked: object is its struct aside */
	LIVE_TAKEN, /* its answer arrived, and a lane works on it */
};

struct live_file {
	uint64_t size, sum[2]; /* LIVE_SMALL */
	void *object; /* LIVE_SMALL, LIVE_OTHER: its removal, or NULL */
};

struct id_page;
struct ids {
	struct id_page *pages;
	uint32_t count; /* of pages */
	size_t room;
	uint32_t last; /* the last id that was assigned */
};

enum { IDS_AT_ONCE = 64 };
/* Reserves about IDS_AT_ONCE ids: from *first to before *end. */
int ids_take(struct ids *t, uint32_t *first, uint32_t *end);
enum live ids_kind(const struct ids *t, uint32_t id);
/* LIVE_DIR and LIVE_SAME need only this. */
void ids_set(struct ids *t, uint32_t id, enum live kind);
/* For the other kinds; NULL: settled. */
struct live_file *ids_file(struct ids *t, uint32_t id);
/* The id is finished. */
void ids_settle(struct ids *t, uint32_t id);
void ids_free(struct ids *t, void (*each)(void *ctx, enum live kind, struct live_file *f),
	      void *ctx);

#endif
