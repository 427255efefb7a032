/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink/sink_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "base/io.h"
#include "base/timestamp.h"
#include "lane/fault.h"

/* Positions are multiples of CELL, so their low bits have room for marks. */
enum { TAKEN = 1, ZERO = 2, MARKS = CELL - 1 };
enum { CELLS_FIRST = 8, CELLS_LIMIT_REACHED = 2 /* no more cells can be kept */ };

struct sent_cell {
	uint64_t pos; /* with marks */
	uint64_t digest[2];
};

struct sent_cells { /* sorted by pos */
	size_t count, room;
	struct sent_cell *items;
	atomic_size_t *total_bytes; /* of all files */
};

void sent_cells_free(struct sent_cells *c)
{
	if (!c)
		return;
	atomic_fetch_sub(c->total_bytes, c->room * sizeof *c->items);
	free(c->items);
	free(c);
}

static int grow_sent_cells(struct sent_cells *c)
{
	size_t more = c->room ? c->room : CELLS_FIRST, bytes = more * sizeof *c->items;

	if (atomic_fetch_add(c->total_bytes, bytes) + bytes > fault_bound(SINK_CELLS_BYTES_MAX)) {
		atomic_fetch_sub(c->total_bytes, bytes);
		return CELLS_LIMIT_REACHED;
	}
	if (ARRAY_ROOM(c->items, c->count, c->room, more)) {
		atomic_fetch_sub(c->total_bytes, bytes);
		return fail_as(OUT_MEMORY, "keep digests of %zu cells: %m", c->count + more);
	}
	return 0;
}

static int add_sent_cell(struct sent_cells *c, uint64_t pos, const uint64_t digest[2], bool zero)
{
	int ret = c->count == c->room ? grow_sent_cells(c) : 0;

	if (ret)
		return ret;
	c->items[c->count++] = (struct sent_cell){
		.pos = pos | (zero ? ZERO : 0),
		.digest = {digest[0], digest[1]},
	};
	return 0;
}

static size_t find_sent_cell(const struct sent_cells *c, uint64_t pos)
{
	size_t from = 0, to = c->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if ((c->items[mid].pos & ~(uint64_t)MARKS) < pos)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

bool sent_cells_take(struct sent_cells *c, uint64_t pos, uint64_t len, uint64_t sum[2],
		     uint64_t nonzero_sum[2])
{
	size_t at = find_sent_cell(c, pos), n = (size_t)((len + CELL - 1) / CELL);

	if (pos % CELL || n > c->count || at > c->count - n)
		return false;
	for (size_t i = 0; i < n; i++) {
		uint64_t cell = c->items[at + i].pos;

		if ((cell & TAKEN) || (cell & ~(uint64_t)MARKS) != pos + i * CELL)
			return false;
	}
	for (size_t i = 0; i < n; i++) {
		struct sent_cell *cell = &c->items[at + i];

		cell->pos |= TAKEN;
		sum_add(sum, cell->digest);
		if (!(cell->pos & ZERO))
			sum_add(nonzero_sum, cell->digest);
	}
	return true;
}

/* ---- sending -------------------------------------------------------------------------- */

struct cell_sender {
	struct sink_lane *lane;
	const struct sink_question *question;
	const struct record_file *r;
	int fd;
	uint64_t readable; /* bytes of it that can be read */
	struct sent_cells *sent; /* NULL: not wanted */
};

static int flush_cells(struct sink_lane *l)
{
	struct sink_mail *m = l->mail;
	struct writer w = writer_of(m->body, sizeof m->body);

	if (m->cells.count == 0)
		return 0;
	msg_cells_encode(&w, &m->cells);
	m->cells.count = 0;
	return sink_send(l->sink, MSG_CELLS, &w);
}

static int send_cell(struct cell_sender *t, uint64_t pos, size_t len)
{
	struct msg_cells *m = &t->lane->mail->cells;
	bool follows = m->count > 0 && m->pos + (uint64_t)m->count * CELL == pos;
	uint64_t digest[2];
	int ret;

	cell_hash_of(pos, t->lane->scratch, len, digest);
	ret = t->sent ? add_sent_cell(t->sent, pos, digest, bytes_are_zero(t->lane->scratch, len))
		      : 0;
	if (ret)
		return ret;
	if ((!follows || m->count == CELLS_MAX) && flush_cells(t->lane))
		return -1;
	if (m->count == 0)
		m->pos = pos;
	memcpy(m->digest[m->count++], digest, sizeof digest);
	return 0;
}

static int fail_comparison(const struct cell_sender *t, bool unreadable)
{
	char shown[SHOWN_ROOM];

	sink_name_shown(t->lane->sink, t->question->dir, t->r->name, shown);
	if (unreadable)
		fail("read %s to compare it: %m", shown);
	else
		fail("compare %s: the target changed while it was read", shown);
	return 1;
}

/* Sends all cells that overlap the data from data to hole, beginning at *pos, and advances *pos. */
static int send_extent_cells(struct cell_sender *t, uint64_t data, uint64_t hole, uint64_t *pos)
{
	uint64_t at = data - data % CELL;

	if (at < *pos)
		at = *pos;
	for (; at < hole; at += CELL) {
		size_t len = t->r->size - at < CELL ? (size_t)(t->r->size - at) : CELL;
		ssize_t n;
		int ret;

		/* The file ends inside this cell. */
		if (len > t->readable - at)
			break;
		if (copy_interrupted(t->lane->sink->copy))
			return -1;
		n = pread_full(t->fd, t->lane->scratch, len, (off_t)at);
		if (n != (ssize_t)len)
			return fail_comparison(t, n < 0);
		ret = send_cell(t, at, len);
		if (ret)
			return ret;
	}
	*pos = at;
	return 0;
}

static int send_all_cells(struct cell_sender *t)
{
	uint64_t pos = 0;
	int ret = 0;

	while (ret == 0 && pos < t->readable) {
		off_t data = lseek(t->fd, (off_t)pos, SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(t->fd, data, SEEK_HOLE);
		uint64_t before = pos;

		if (data < 0 && errno == ENXIO)
			break;
		/* A file system that does not report holes has none. */
		if (hole < 0) {
			data = (off_t)pos;
			hole = (off_t)t->readable;
		}
		if ((uint64_t)data >= t->readable)
			break;
		if ((uint64_t)hole > t->readable)
			hole = (off_t)t->readable;
		ret = send_extent_cells(t, (uint64_t)data, (uint64_t)hole, &pos);
		if (ret == 0 && pos == before)
			break;
	}
	return ret;
}

/* The source takes cells that were not sent for zeros, and expects nothing behind r->size.  That
 * holds only if no other process has changed the target meanwhile. */
static int check_unchanged(const struct cell_sender *t, const struct stat *before)
{
	struct stat st;

	if (fstat(t->fd, &st))
		return fail_comparison(t, true);
	if ((uint64_t)st.st_size != t->r->size || !time_equals(&st.st_mtim, &before->st_mtim))
		return fail_comparison(t, false);
	return 0;
}

int sink_alloc_scratch(struct sink_lane *l)
{
	void *scratch;

	if (l->scratch)
		return 0;
	if (posix_memalign(&scratch, LANE_PAGE, CELL))
		return fail_as(OUT_MEMORY, "allocate %d bytes", CELL);
	l->scratch = scratch;
	return 0;
}

int sink_send_cells(struct sink_lane *l, const struct sink_question *q, int fd,
		    struct sent_cells **out)
{
	const struct record_file *r = &q->r;
	struct cell_sender t = {.lane = l, .question = q, .r = r, .fd = fd};
	struct stat st;
	int ret;

	if (out)
		*out = NULL;
	if (fstat(fd, &st))
		return fail_comparison(&t, true);
	if (sink_alloc_scratch(l) || sink_flush(l))
		return -1;
	if (out && !(t.sent = calloc(1, sizeof *t.sent)))
		return fail_as(OUT_MEMORY, "keep digests of cells: %m");
	if (t.sent)
		t.sent->total_bytes = &l->sink->cells_bytes;
	t.readable = (uint64_t)st.st_size < r->size ? (uint64_t)st.st_size : r->size;
	l->mail->cells.file = r->id;
	ret = send_all_cells(&t);
	/* The source sends the cells that were left out. */
	if (ret == CELLS_LIMIT_REACHED)
		ret = 0;
	if (ret == 0 && !out)
		ret = check_unchanged(&t, &st);
	/* Cells of a file to be resumed stay valid, even if a later one cannot be read. */
	if (ret == 0 || (ret > 0 && out))
		ret = flush_cells(l);
	l->mail->cells.count = 0;
	if (ret == 0 && out && t.sent->count > 0)
		*out = t.sent;
	else
		sent_cells_free(t.sent);
	return ret;
}
