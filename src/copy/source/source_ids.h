/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_SOURCE_SOURCE_IDS_H
#define COPY_SOURCE_SOURCE_IDS_H

/*
 * What the source knows of each id that it gave away, until the sink's result comes.  Ids come in
 * order and are done with roughly in order, so they are kept in pages, each freed when
 * all in it are done; of a directory, or a file that is the same, a bit is left, since the sink
 * may tell of its failure as late as at the end.
 *
 * The copy's lock is held in all calls.
 */

#include <stddef.h>
#include <stdint.h>

enum live {
	LIVE_NONE, /* not given away, or done with */
	LIVE_DIR,
	LIVE_SAME, /* a regular file that the sink has as it is */
	LIVE_SMALL, /* a regular file that was whole in one block */
	LIVE_OTHER, /* a symlink, hard link, device or FIFO */
	LIVE_FILE, /* a file of several blocks: of is its source_file */
	LIVE_ASKED, /* of is its aside */
	LIVE_TAKEN, /* its answer came, and a lane is at it */
};

struct live_file {
	uint64_t size, sum[2]; /* LIVE_SMALL */
	void *of; /* LIVE_SMALL, LIVE_OTHER: its removal, or NULL */
};

struct id_page;
struct ids {
	struct id_page *pages;
	uint32_t count; /* of pages */
	size_t room;
	uint32_t last; /* given away */
};

enum { IDS_AT_ONCE = 64 };
/* The next ones, about IDS_AT_ONCE of them: from *first to before *end. */
int ids_take(struct ids *t, uint32_t *first, uint32_t *end);
enum live ids_kind(const struct ids *t, uint32_t id);
/* LIVE_DIR and LIVE_SAME need no more than this. */
void ids_set(struct ids *t, uint32_t id, enum live kind);
/* Of other kinds; NULL: it was done with. */
struct live_file *ids_file(struct ids *t, uint32_t id);
/* It is done with. */
void ids_settle(struct ids *t, uint32_t id);
void ids_free(struct ids *t, void (*each)(void *ctx, enum live kind, struct live_file *f),
	      void *ctx);

#endif
