/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source.h"

#include <errno.h>
#include <string.h>
#include "base/fail.h"

/* Room that the records of a small file need beside its name and its bytes, at the most. */
enum { SMALL_ROOM = 256 };

static int next_block(struct source_lane *l)
{
	if (l->block)
		return 0;
	if (lane_get(l->lane, &l->block))
		return -1;
	l->records = writer_of(l->block->data, lane_block_size(l->lane));
	return 0;
}

static int send_block(struct source_lane *l, enum block_kind kind, uint32_t file, uint64_t pos,
		      uint32_t len)
{
	struct block *b = l->block;

	b->kind = (uint8_t)kind;
	b->file = file;
	b->pos = pos;
	b->len = len;
	l->block = NULL;
	l->records = (struct writer){0};
	if (session_pace(l->source->session, len))
		return -1;
	return lane_send(l->lane, b);
}

static int send_records(struct source_lane *l)
{
	return send_block(l, BLOCK_RECORDS, 0, 0, (uint32_t)l->records.used);
}

/* Make sure that so many bytes of records fit. */
static int room_for(struct source_lane *l, size_t len)
{
	if (l->block && l->records.size - l->records.used < len && send_records(l))
		return -1;
	return next_block(l);
}

static void put_file(struct source_lane *l, const struct source_file *f)
{
	struct record_file r;

	source_file_record(f, &r);
	record_file_encode(&l->records, &r);
}

/* Its FILE_END; f may be gone after this. */
static int end_file(struct source_lane *l, struct source_file *f)
{
	struct record_file_end r;

	source_end(l->source, f, &r);
	if (room_for(l, SMALL_ROOM + strlen(r.text)))
		return -1;
	record_file_end_encode(&l->records, &r);
	return 0;
}

/* ---- small files --------------------------------------------------------------------- */

static bool is_small(const struct source_lane *l, const struct source_file *f)
{
	uint32_t room = lane_block_size(l->lane);

	return !(f->flags & (FILE_STREAM | FILE_SPARSE)) && f->size <= SMALL_MAX &&
	       f->size + SMALL_ROOM + strlen(f->path) < room;
}

static int send_small(struct source_lane *l, struct source_file *f)
{
	struct record_data r = {.bytes = l->scratch, .len = (uint32_t)f->size};

	if (room_for(l, SMALL_ROOM + strlen(f->path) + r.len))
		return -1;
	source_number(l, f, true);
	r.id = f->id;
	put_file(l, f);
	if (r.len > 0) {
		digest_add(f->ordered, 0, r.bytes, r.len);
		record_data_encode(&l->records, &r);
		tally_bytes(l->source->copy->tally, r.len);
	}
	f->data = r.len;
	return end_file(l, f);
}

static bool file_stop(void *file)
{
	struct source_file *f = file;

	return atomic_load(&f->stop);
}

static int do_open(struct source_lane *l, unsigned index)
{
	struct source *s = l->source;
	const struct found_path *p = &s->found.paths[index];
	struct stopper stopper = {.stop = copy_stopped, .ctx = s->copy};
	struct source_file *f;

	if (p->twin) {
		fail("%s is not copied over %s, which has the same name", p->path,
		     s->found.paths[p->twin - 1].path);
		return source_open_failed(s, p->path);
	}
	if (source_file_open(p->path, p->want, p->missing, &stopper, &f))
		return source_open_failed(s, p->path);
	if (source_hold(s, f)) {
		source_drop(s, f);
		return source_open_failed(s, p->path);
	}
	if (!s->o->no_sparse)
		source_file_find_holes(f);
	if (!is_small(l, f)) {
		source_number(l, f, false);
		return 0;
	}
	if (source_file_read(f, l->scratch, f->size, 0) == 0)
		return send_small(l, f);
	source_drop(s, f);
	return source_open_failed(s, p->path);
}

/* ---- files of several blocks --------------------------------------------------------- */

/* Read and send what was claimed; *sent counts what went out, also on failure.  1: the file
 * failed, -1: the session. */
static int send_data(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len,
		     uint64_t *sent)
{
	uint32_t size = lane_block_size(l->lane);

	while (len > 0) {
		uint32_t n = len < size ? (uint32_t)len : size;
		struct block *b;

		if (next_block(l))
			return -1;
		b = l->block;
		if (source_file_read(f, b->data, n, pos))
			return 1;
		b->pos = pos;
		b->len = n;
		block_seal(b);
		digest_add_block(l->digest, b, pos + n == f->size);
		tally_bytes(l->source->copy->tally, n);
		if (send_block(l, BLOCK_EXTENT, f->id, pos, n))
			return -1;
		pos += n;
		len -= n;
		*sent += n;
	}
	return 0;
}

static int put_hole(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len)
{
	struct record_hole r = {.id = f->id, .pos = pos, .len = len};

	record_hole_encode(&l->records, &r);
	tally_bytes(l->source->copy->tally, len);
	return 0;
}

static int read_piece(struct source_lane *l, struct source_file *f, uint64_t *data, uint64_t *holes)
{
	uint64_t size = lane_block_size(l->lane);
	uint64_t pos, len;
	enum claim claim;
	bool left;
	int ret = 0;

	pthread_mutex_lock(&f->turn);
	claim = CLAIM_NONE;
	if (!atomic_load(&f->stop))
		claim = source_file_claim(f, size > CELL ? size : CELL, &pos, &len);
	left = f->pos < f->size && !atomic_load(&f->stop);
	pthread_mutex_unlock(&f->turn);
	if (!left)
		source_exhaust(l->source, f, false);
	if (claim == CLAIM_DATA)
		ret = send_data(l, f, pos, len, data);
	if (claim == CLAIM_HOLE) {
		*holes = len;
		ret = put_hole(l, f, pos, len);
	}
	if (ret > 0 && copy_interrupted(l->source->copy))
		ret = -1;
	if (ret > 0)
		source_exhaust(l->source, f, true);
	return ret < 0 ? -1 : 0;
}

/* ---- streams ------------------------------------------------------------------------- */

static bool stream_stop(void *lane)
{
	struct source_lane *l = lane;

	return copy_stopped(l->source->copy);
}

struct both {
	struct source_lane *lane;
	struct source_file *file;
};

static bool either_stop(void *ctx)
{
	struct both *b = ctx;

	return stream_stop(b->lane) || file_stop(b->file);
}

/* Read into b what comes next, and where it is; turn held.  What is no whole cells is hashed
 * here, in order; up to the end of a cell, so that the next read begins one. */
static ssize_t gather(struct source_lane *l, struct source_file *f, struct block *b)
{
	struct both both = {.lane = l, .file = f};
	struct stopper stopper = {.stop = either_stop, .ctx = &both};
	size_t room = lane_block_size(l->lane);
	ssize_t n = 0;

	if (f->pos % CELL && room > CELL - f->pos % CELL)
		room = CELL - f->pos % CELL;
	if (f->after > 0 || either_stop(&both)) {
		errno = f->after > 0 ? f->after : ECANCELED;
		n = -1;
	} else if (f->after == 0) {
		n = stream_gather(f->fd, b->data, room, &stopper, &f->after);
	}
	if (n <= 0)
		return n;
	b->pos = f->pos;
	b->len = (uint32_t)n;
	if (b->pos % CELL || b->len % CELL)
		digest_add(f->ordered, b->pos, b->data, b->len);
	f->pos += b->len;
	return n;
}

static int read_stream(struct source_lane *l, struct source_file *f, uint64_t *data)
{
	struct block *b = l->block;
	bool whole;
	ssize_t n;
	int after;

	pthread_mutex_lock(&f->turn);
	n = gather(l, f, b);
	/* Nobody tries again what failed or ended. */
	if (n <= 0 && f->after == 0)
		f->after = n < 0 ? errno : GATHER_END;
	after = f->after;
	pthread_mutex_unlock(&f->turn);
	errno = after;
	if (n < 0)
		fail("read %s: %m", f->path);
	if (n < 0 && copy_interrupted(l->source->copy))
		return -1;
	if (n <= 0) {
		source_exhaust(l->source, f, n < 0);
		return 0;
	}
	whole = b->pos % CELL == 0 && b->len % CELL == 0;
	block_seal(b);
	if (whole)
		digest_add_block(l->digest, b, false);
	tally_bytes(l->source->copy->tally, b->len);
	*data = b->len;
	return send_block(l, BLOCK_EXTENT, f->id, b->pos, b->len);
}

/* ---- the thread ---------------------------------------------------------------------- */

static int do_read(struct source_lane *l, struct source_file *f)
{
	uint64_t data = 0, holes = 0, sum[2];
	int ret;

	digest_reset(l->digest);
	ret = f->flags & FILE_STREAM ? read_stream(l, f, &data) : read_piece(l, f, &data, &holes);
	digest_sum(l->digest, sum);
	if (ret)
		return -1;
	if (source_leave(l->source, f, data, holes, sum))
		return end_file(l, f);
	return 0;
}

static int do_announce(struct source_lane *l, struct source_file *f)
{
	static const uint64_t nothing[2];

	put_file(l, f);
	if (send_records(l))
		return -1;
	return source_leave(l->source, f, 0, 0, nothing) ? end_file(l, f) : 0;
}

static int do_job(struct source_lane *l, bool *over)
{
	struct source_file *f = NULL;
	unsigned index = 0;

	switch (source_pick(l, &f, &index)) {
	case JOB_FAILED:
		return -1;
	case JOB_OVER:
		*over = true;
		return send_records(l);
	case JOB_FLUSH:
		return send_records(l);
	case JOB_OPEN:
		return do_open(l, index);
	case JOB_ANNOUNCE:
		return do_announce(l, f);
	case JOB_READ:
		return do_read(l, f);
	}
	return -1;
}

void *source_lane_run(void *arg)
{
	struct source_lane *l = arg;
	struct copy *c = l->source->copy;
	bool over = false;
	int ret = 0;

	while (ret == 0 && !over) {
		ret = next_block(l);
		if (ret == 0)
			ret = do_job(l, &over);
	}
	if (ret == 0)
		ret = lane_flush(l->lane);
	if (ret && !atomic_load(&c->failed))
		session_fail(l->source->session);
	pthread_mutex_lock(&c->lock);
	l->source->working--;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
