/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include "base/fail.h"

/* What a lane sent of its piece. */
struct sent_piece {
	uint64_t data, holes;
	uint64_t sum[2]; /* without what l->digest has */
};

/* ---- the end of a file --------------------------------------------------------------- */

static int put_file_end(struct source_lane *l, const struct record_file_end *r)
{
	if (source_reserve_room(l, END_ROOM + strlen(r->text)))
		return -1;
	record_file_end_encode(&l->records, r);
	return 0;
}

/* Sends attributes on the lane that sends the FILE_END.  If they cannot be read, the file fails. */
static int put_attributes(struct source_lane *l, struct source_file *f)
{
	const struct rules *rules = l->source->rules;
	struct xattrs *x = NULL;
	struct record_attr a;
	int ret = 0;

	if ((!rules->acls && !rules->xattrs) || f->stream || atomic_load(&f->stop))
		return 0;
	if (xattrs_read(f->fd, f->shown, rules, &x)) {
		source_exhaust_file(l->source, f, true);
	} else if (x) {
		walk_attr_of(&f->st, &a);
		ret = source_put_owners(l, &a, x) || source_put_xattrs(l, f->id, x) ? -1 : 0;
	}
	xattrs_free(x);
	return ret;
}

static int end_compared(struct source_lane *l, struct source_file *f)
{
	struct record_same r = {.id = f->id};

	if (!source_end_compared(l->source, f))
		return 0;
	pthread_mutex_lock(&l->source->copy->lock);
	source_mark_same_sent(l);
	pthread_mutex_unlock(&l->source->copy->lock);
	if (source_reserve_room(l, RECORD_HEAD + sizeof r.id))
		return -1;
	record_same_encode(&l->records, &r);
	return 0;
}

/* f may be freed after this. */
static int end_file(struct source_lane *l, struct source_file *f)
{
	struct record_file_end r;

	if (f->compared)
		return end_compared(l, f);
	if (put_attributes(l, f))
		return -1;
	source_end_file(l->source, f, &r);
	return put_file_end(l, &r);
}

/* ---- pieces of files ----------------------------------------------------------------- */

static int send_extent(struct source_lane *l, struct source_file *f, uint64_t pos, uint32_t len)
{
	tally_bytes(l->source->copy->tally, len);
	l->counts.sent += len;
	return source_send(l, BLOCK_EXTENT, f->id, pos, len);
}

/* Reads as much of the claimed piece as the lane has blocks for, with one call.  Returns the bytes
 * that arrived. */
static uint64_t read_ahead(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len)
{
	uint32_t size = lane_block_size(l->lane);
	struct iovec to[SPARE_MAX + 1];
	int count = 0;

	if (!f->direct || !l->block || l->spares == 0 || len <= size)
		return 0;
	for (uint64_t at = 0; at < len && (unsigned)count <= l->spares; at += size) {
		struct block *b = count == 0 ? l->block : l->spare[count - 1];

		to[count++] = (struct iovec){.iov_base = b->data, .iov_len = size};
	}
	return source_file_read_many(f, to, count, pos);
}

/* Reads and sends the claimed piece, and counts in *sent what was sent, also on failure.  1: the
 * file failed.  -1: the session failed. */
static int send_data(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len,
		     struct sent_piece *sent)
{
	uint32_t size = lane_block_size(l->lane);
	uint64_t ahead = read_ahead(l, f, pos, len);

	while (len > 0) {
		uint32_t n = len < size ? (uint32_t)len : size;
		struct block *b;

		if (source_get_block(l))
			return -1;
		b = l->block;
		if (ahead < n && source_file_read(f, b->data, n, pos))
			return 1;
		ahead = ahead < n ? 0 : ahead - n;
		b->pos = pos;
		b->len = n;
		if (!l->source->o->unchecked) {
			block_seal(b);
			digest_add_block(l->digest, b, pos + n == f->size);
		}
		if (send_extent(l, f, pos, n))
			return -1;
		pos += n;
		len -= n;
		sent->data += n;
	}
	return 0;
}

/* As send_data(), from l->scratch. */
static int send_scratch(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len,
			struct sent_piece *sent)
{
	uint32_t size = lane_block_size(l->lane);

	for (uint64_t at = 0; at < len;) {
		uint32_t n = len - at < size ? (uint32_t)(len - at) : size;

		if (source_get_block(l))
			return -1;
		memcpy(l->block->data, l->scratch + at, n);
		if (send_extent(l, f, pos + at, n))
			return -1;
		at += n;
		sent->data += n;
	}
	return 0;
}

static int put_have(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len,
		    struct sent_piece *sent)
{
	struct record_have r = {.id = f->id, .pos = pos, .len = len};

	record_have_encode(&l->records, &r);
	tally_bytes(l->source->copy->tally, len);
	l->counts.had += len;
	sent->holes += len;
	return 0;
}

/* Sends HAVE for a cell that the sink has, or its bytes if they differ. */
static int send_known_cell(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len,
			   struct sent_piece *sent)
{
	const uint64_t *known = known_cells_at(f->known, pos);
	uint64_t sum[2];

	if (source_file_read(f, l->scratch, len, pos))
		return 1;
	cell_hash_of(pos, l->scratch, len, sum);
	sum_add(sent->sum, sum);
	if (known[0] == sum[0] && known[1] == sum[1])
		return put_have(l, f, pos, len, sent);
	return send_scratch(l, f, pos, len, sent);
}

static int put_hole(struct source_lane *l, struct source_file *f, uint64_t pos, uint64_t len,
		    struct sent_piece *sent)
{
	struct record_hole r = {.id = f->id, .pos = pos, .len = len};

	record_hole_encode(&l->records, &r);
	tally_bytes(l->source->copy->tally, len);
	l->counts.holes += len;
	sent->holes += len;
	return 0;
}

/* Does the sink have these bytes of f?  A cell that it did not send is zero there. */
static bool is_same_cell(const struct source_file *f, uint64_t pos, const uint8_t *bytes,
			 size_t len)
{
	const uint64_t *known = known_cells_at(f->known, pos);
	uint64_t sum[2];

	if (!known)
		return bytes_are_zero(bytes, len);
	cell_hash_of(pos, bytes, len, sum);
	return known[0] == sum[0] && known[1] == sum[1];
}

static int compare_cells(struct source_lane *l, struct source_file *f, enum claim claim,
			 uint64_t pos, uint64_t len)
{
	while (len > 0) {
		size_t n = len < CELL ? (size_t)len : CELL;
		uint64_t next = claim == CLAIM_HOLE ? known_cells_next(f->known, pos) : pos;

		/* Both files are zero up to there. */
		if (next > pos) {
			uint64_t zeros = next - pos < len ? next - pos : len;

			pos += zeros;
			len -= zeros;
			continue;
		}
		if (claim == CLAIM_HOLE)
			memset(l->scratch, 0, n);
		else if (source_file_read(f, l->scratch, n, pos))
			return 1;
		if (!is_same_cell(f, pos, l->scratch, n)) {
			atomic_store(&f->differs, true);
			atomic_store(&f->stop, true);
			return 0;
		}
		pos += n;
		len -= n;
	}
	return 0;
}

/* How much to claim at once: one cell that the sink has; else as many whole cells as there are
 * blocks for, up to the next one that the sink has. */
static uint64_t choose_claim_unit(const struct source_lane *l, const struct source_file *f,
				  unsigned blocks)
{
	uint64_t size = (uint64_t)blocks * lane_block_size(l->lane);
	uint64_t unit = size > CELL ? size - size % CELL : CELL;
	uint64_t next_known = f->known ? known_cells_next(f->known, f->pos) : UINT64_MAX;

	if (f->cloned)
		return f->size;
	if (f->compared || next_known == f->pos)
		return CELL;
	return next_known - f->pos < unit ? next_known - f->pos : unit;
}

/* 1: the file fails, because a block's head cannot hold this position. */
static int check_extent_reach(const struct source_file *f, uint64_t pos, uint64_t len)
{
	if (pos + len <= (uint64_t)INT64_MAX - LANE_BLOCK_MAX)
		return 0;
	fail("read %s: it has data beyond the largest offset that can be sent", f->shown);
	return 1;
}

static int send_piece(struct source_lane *l, struct source_file *f, enum claim claim, uint64_t pos,
		      uint64_t len, struct sent_piece *sent)
{
	if (claim == CLAIM_NONE)
		return 0;
	if (f->compared)
		return compare_cells(l, f, claim, pos, len);
	if (f->cloned)
		return put_have(l, f, pos, len, sent);
	if (claim == CLAIM_HOLE)
		return put_hole(l, f, pos, len, sent);
	if (check_extent_reach(f, pos, len))
		return 1;
	if (known_cells_at(f->known, pos))
		return send_known_cell(l, f, pos, len, sent);
	return send_data(l, f, pos, len, sent);
}

static int send_next_piece(struct source_lane *l, struct source_file *f, struct sent_piece *sent)
{
	enum claim claim = CLAIM_NONE;
	uint64_t pos = 0, len = 0;
	unsigned blocks = 1;
	bool left;
	int ret;

	if (f->direct && !f->compared && source_get_blocks(l, DIRECT_AT_ONCE, &blocks))
		return -1;
	pthread_mutex_lock(&f->turn);
	if (!atomic_load(&f->stop))
		claim = source_file_claim(f, choose_claim_unit(l, f, blocks), &pos, &len);
	left = f->pos < f->size && !atomic_load(&f->stop);
	atomic_store(&f->left, f->size - f->pos);
	pthread_mutex_unlock(&f->turn);
	if (!left)
		source_exhaust_file(l->source, f, false);
	if (claim == CLAIM_DATA)
		atomic_fetch_add(&l->source->large.claimed, len);
	ret = send_piece(l, f, claim, pos, len, sent);
	if (ret > 0 && copy_interrupted(l->source->copy))
		ret = -1;
	if (ret > 0 || (ret == 0 && f->compared && atomic_load(&f->stop)))
		source_exhaust_file(l->source, f, ret > 0);
	return ret < 0 ? -1 : 0;
}

/* ---- streams ------------------------------------------------------------------------- */

struct either_stopper {
	struct copy *copy;
	struct source_file *file;
};

static bool is_either_stopped(void *ctx)
{
	struct either_stopper *b = ctx;

	return copy_stopped(b->copy) || atomic_load(&b->file->stop);
}

/* Reads the stream's next bytes into b; turn held.  A read that begins inside a cell ends with that
 * cell, so that the next one begins a cell.  What is not whole cells is hashed here, in order. */
static ssize_t gather_block(struct source_lane *l, struct source_file *f, struct block *b)
{
	struct either_stopper both = {.copy = l->source->copy, .file = f};
	struct stopper stopper = {.stop = is_either_stopped, .ctx = &both};
	size_t room = lane_block_size(l->lane);
	ssize_t n = 0;

	if (f->pos % CELL && room > CELL - f->pos % CELL)
		room = CELL - f->pos % CELL;
	if (f->after > 0 || is_either_stopped(&both)) {
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

/* Takes the turn, if it is free and there is input, each within UNCONFIRMED_MS. */
static bool try_turn(struct source_file *f)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN};
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until); /* the clock of pthread_mutex_timedlock() */
	until.tv_nsec += UNCONFIRMED_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	if (pthread_mutex_timedlock(&f->turn, &until))
		return false;
	if (f->after != 0 || atomic_load(&f->stop) || poll(&p, 1, UNCONFIRMED_MS) != 0)
		return true;
	pthread_mutex_unlock(&f->turn);
	return false;
}

/* The lane with the turn may wait for input for ever, and all other lanes for that lane.  Meanwhile
 * a wire may break and lose blocks, and the input may depend on the reader of these blocks.  So a
 * lane with unconfirmed blocks tends its wire while it waits. */
static int take_turn(struct source_lane *l, struct source_file *f)
{
	while (l->unconfirmed) {
		int unconfirmed;

		if (try_turn(f))
			return 0;
		unconfirmed = lane_tend(l->lane);
		if (unconfirmed < 0)
			return -1;
		l->unconfirmed = unconfirmed;
	}
	pthread_mutex_lock(&f->turn);
	return 0;
}

static int send_next_stream(struct source_lane *l, struct source_file *f, struct sent_piece *sent)
{
	struct block *b = l->block;
	int after, ret = 0;
	ssize_t n;

	if (take_turn(l, f))
		return -1;
	n = gather_block(l, f, b);
	/* No lane reads again after a failure or the end. */
	if (n <= 0 && f->after == 0)
		f->after = n < 0 ? errno : GATHER_END;
	after = f->after;
	/* Pace with the turn held, so that no later piece is sent before this one. */
	/* How many bytes a compressed block has on the wire is known only later, and lanes
	 * compress at the same time. */
	if (n > 0 && !lane_packs(l->lane))
		ret = source_pace(l, b->len);
	pthread_mutex_unlock(&f->turn);
	if (ret)
		return -1;
	errno = after;
	if (n < 0)
		fail("read %s: %m", f->shown);
	if (n < 0 && copy_interrupted(l->source->copy))
		return -1;
	if (n <= 0) {
		source_exhaust_file(l->source, f, n < 0);
		return 0;
	}
	atomic_fetch_add(&l->source->large.claimed, b->len);
	block_seal(b);
	if (b->pos % CELL == 0 && b->len % CELL == 0)
		digest_add_block(l->digest, b, false);
	sent->data = b->len;
	return send_extent(l, f, b->pos, b->len);
}

/* ---- jobs ---------------------------------------------------------------------------- */

int source_send_piece(struct source_lane *l, struct source_file *f)
{
	struct sent_piece sent = {0};
	uint64_t sum[2], done;
	int ret;

	digest_reset(l->digest);
	ret = f->flags & FILE_STREAM ? send_next_stream(l, f, &sent) : send_next_piece(l, f, &sent);
	digest_sum(l->digest, sum);
	sum_add(sent.sum, sum);
	/* A piece without bytes ends the large files' turn. */
	done = sent.data + sent.holes;
	l->large_due = done > 0 && l->large_due > done ? l->large_due - done : 0;
	if (ret)
		return -1;
	if (source_release_file(l->source, f, sent.data, sent.holes, sent.sum))
		return end_file(l, f);
	return 0;
}

int source_announce(struct source_lane *l, struct source_file *f)
{
	static const uint64_t nothing[2];
	struct record_file r;

	source_file_record(f, &r);
	if (!f->stream && !f->generated && !(f->flags & FILE_STREAM) &&
	    source_put_origin(l, f->want, f->dir, f->name, &f->st))
		return -1;
	if (source_put_dir(l, f->dir) || source_put_lookalikes(l, f->want, f->dir, f->name) ||
	    source_put_owners(l, &r.a, NULL) || source_reserve_room(l, RECORD_FILE_MAX))
		return -1;
	record_file_encode(&l->records, &r);
	if (source_send_records(l))
		return -1;
	return source_release_file(l->source, f, 0, 0, nothing) ? end_file(l, f) : 0;
}
