/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <string.h>
#include "base/fail.h"
#include "base/io.h"
#include "copy/io/content_digest.h"

/*
 * Small files, which are most files of most trees.  One lane opens a file, reads it and packs it
 * into a block.
 */

bool item_is_small(const struct source_lane *l, const struct source_item *it)
{
	if ((it->flags & FILE_STREAM) || it->size > l->source->small_max)
		return false;
	/* Only files of several blocks are resumed. */
	return !(it->aside && it->aside->answer == ANSWER_RESUME);
}

struct source_small {
	struct record_file r;
	struct record_file_end end;
	struct xattrs *xattrs;
	struct removal *removal;
	bool hole; /* the file is one hole */
};

static int read_small_bytes(const struct source_item *it, uint8_t *to, uint64_t digest[2])
{
	size_t size = (size_t)it->size;
	char room[FAIL_TEXT_MAX];
	ssize_t n = pread_full(it->fd, to, size, 0);

	if (n < 0)
		return fail("read %s: %m", item_shown(it, room, sizeof room));
	if ((size_t)n < size)
		return source_fail_changed(item_shown(it, room, sizeof room), "shrank");
	cell_hash_of(0, to, size, digest);
	return 0;
}

/* Reads the whole file into l->scratch. */
static int read_small(struct source_lane *l, struct source_item *it, struct source_small *m)
{
	bool has_bytes = it->size > 0;

	if (it->measured) {
		if (has_bytes)
			cell_hash_of(0, l->scratch, (size_t)it->size, m->end.digest);
		return 0;
	}
	m->hole = has_bytes && !l->source->rules->no_sparse && source_file_is_hole(it->fd, &it->st);
	return has_bytes && !m->hole ? read_small_bytes(it, l->scratch, m->end.digest) : 0;
}

/* Reads what only some options need. */
static int read_small_extras(struct source_lane *l, struct source_item *it, struct source_small *m)
{
	const struct rules *rules = l->source->rules;
	struct stopper stopper = {.stop = copy_stopped, .ctx = l->source->copy};
	char room[FAIL_TEXT_MAX];
	const char *shown;

	if (!rules->acls && !rules->xattrs && rules->digest == CONTENT_NONE)
		return 0;
	shown = item_shown(it, room, sizeof room);
	if ((rules->acls || rules->xattrs) && xattrs_read(it->fd, shown, rules, &m->xattrs))
		return -1;
	if (rules->digest == CONTENT_NONE)
		return 0;
	m->end.content_len = (uint8_t)content_digest_size(rules->digest);
	if (it->measured)
		return content_digest_of_bytes(l->scratch, (size_t)it->size, shown, rules->digest,
					       m->end.content);
	return content_digest_of(it->fd, shown, 0, it->size, rules->digest, &stopper,
				 m->end.content);
}

static int check_small(const struct source_item *it)
{
	char room[FAIL_TEXT_MAX];
	struct seen seen = seen_of(&it->st);
	struct stat now;
	const char *change;

	if (it->measured)
		return 0;
	if (fstat(it->fd, &now))
		return fail("read %s: %m", item_shown(it, room, sizeof room));
	change = seen_change(&seen, &now);
	return change ? source_fail_changed(item_shown(it, room, sizeof room), change) : 0;
}

static int put_small_bytes(struct source_lane *l, const struct source_small *m)
{
	struct record_data d = {.id = m->r.id, .bytes = l->scratch, .len = (uint32_t)m->r.size};
	struct record_hole h = {.id = m->r.id, .len = m->r.size};

	if (m->r.size == 0)
		return 0;
	if (source_reserve_room(l, RECORD_DATA_HEAD + (m->hole ? 0 : d.len)))
		return -1;
	if (m->hole) {
		record_hole_encode(&l->records, &h);
		l->counts.holes += h.len;
	} else {
		record_data_encode(&l->records, &d);
		l->counts.sent += d.len;
	}
	return 0;
}

static int put_small(struct source_lane *l, struct source_item *it, struct source_small *m)
{
	size_t bytes = m->hole ? 0 : (size_t)m->r.size;

	if (source_put_dir(l, it->dir) || source_put_lookalikes(l, it->want, it->dir, it->name) ||
	    source_put_owners(l, &m->r.a, m->xattrs) || source_reserve_room(l, SMALL_ROOM + bytes))
		return -1;
	/* Keep all of it in one block, if its attributes fit, too. */
	if (m->xattrs &&
	    source_xattrs_room(m->xattrs, m->r.id) + SMALL_ROOM + bytes <=
		    lane_block_size(l->lane) &&
	    source_reserve_room(l, source_xattrs_room(m->xattrs, m->r.id) + SMALL_ROOM + bytes))
		return -1;
	record_file_encode(&l->records, &m->r);
	if (source_put_xattrs(l, m->r.id, m->xattrs) || put_small_bytes(l, m) ||
	    source_reserve_room(l, END_ROOM))
		return -1;
	record_file_end_encode(&l->records, &m->end);
	return 0;
}

static int fill_small_record(struct source_lane *l, struct source_item *it, struct source_small *m)
{
	if (it->id == 0 && source_take_id(l, &it->id))
		return -1;
	item_record(l, it, &m->r);
	m->r.id = it->id;
	m->end.id = it->id;
	m->end.size = m->r.size;
	*(m->hole ? &m->end.holes : &m->end.data) = m->r.size;
	m->end.lanes = 1;
	return 0;
}

static void queue_unpublished_small(struct source_lane *l, struct source_small *m)
{
	struct source_unpublished d = {.id = m->r.id, .kind = LIVE_SMALL};

	l->small_bytes += m->r.size;
	l->small_count++;
	d.file.size = m->r.size;
	memcpy(d.file.sum, m->end.digest, sizeof d.file.sum);
	d.file.object = m->removal;
	m->removal = NULL;
	source_queue_unpublished(l, &d);
}

static int send_small(struct source_lane *l, struct source_item *it, struct source_small *m)
{
	if (fill_small_record(l, it, m))
		return -1;
	if (m->hole)
		m->r.flags |= FILE_SPARSE;
	/* Queue it first: if it needs several blocks, it is published before the first one is sent.
	 */
	queue_unpublished_small(l, m);
	return put_small(l, it, m);
}

/* Does the sink have the same?  Then only SAME is sent. */
static bool is_same_at_sink(const struct source_lane *l, const struct source_item *it,
			    struct source_small *m)
{
	size_t size = (size_t)it->size;
	const uint64_t *known;

	if (!it->aside || it->aside->answer != ANSWER_COMPARE || !aside_is_current(l, it))
		return false;
	known = known_cells_at(it->aside->known, 0);
	if (m->hole)
		memset(l->scratch, 0, size);
	if (m->hole && known) {
		uint64_t zeros[2];

		cell_hash_of(0, l->scratch, size, zeros);
		return known[0] == zeros[0] && known[1] == zeros[1];
	}
	if (!known)
		return bytes_are_zero(l->scratch, size);
	return known[0] == m->end.digest[0] && known[1] == m->end.digest[1];
}

static int send_same(struct source_lane *l, const struct source_item *it, struct source_small *m)
{
	struct record_same r = {.id = it->id};

	if (source_reserve_room(l, RECORD_HEAD + sizeof r.id))
		return -1;
	pthread_mutex_lock(&l->source->copy->lock);
	source_count_same(l->source, it->id);
	removal_hold_same(l->source, it->id, m->removal);
	m->removal = NULL;
	source_mark_same_sent(l);
	pthread_mutex_unlock(&l->source->copy->lock);
	record_same_encode(&l->records, &r);
	return 0;
}

/* Can the file be read right into the block?  Not if its records depend on its bytes or attributes.
 */
static bool can_read_into_block(const struct source_lane *l, const struct source_item *it)
{
	const struct rules *r = l->source->rules;

	if (r->acls || r->xattrs || r->digest != CONTENT_NONE || it->size == 0 || it->measured)
		return false;
	if (it->aside && it->aside->answer == ANSWER_COMPARE)
		return false;
	return l->source->rules->no_sparse || !source_file_may_have_holes(&it->st);
}

/* 1: another block had to be sent first, which may have taken long, so the file's status is old. */
static int send_read_into_block(struct source_lane *l, struct source_item *it,
				struct source_small *m)
{
	const struct block *b = l->block;
	struct record_data d;
	struct writer before;

	if (fill_small_record(l, it, m))
		return -1;
	if (source_put_dir(l, it->dir) || source_put_lookalikes(l, it->want, it->dir, it->name) ||
	    source_put_owners(l, &m->r.a, NULL) ||
	    source_reserve_room(l, SMALL_ROOM + (size_t)m->r.size))
		return -1;
	if (l->block != b)
		return 1;
	before = l->records;
	record_file_encode(&l->records, &m->r);
	d = (struct record_data){.id = m->r.id, .len = (uint32_t)m->r.size};
	if (read_small_bytes(it, record_data_open(&l->records, &d), m->end.digest) ||
	    check_small(it) || item_removal(l, it, &m->removal)) {
		l->records = before;
		return item_report_failed(l, it);
	}
	item_close(it);
	record_file_end_encode(&l->records, &m->end);
	l->counts.sent += m->r.size;
	queue_unpublished_small(l, m);
	return 0;
}

int item_send_small(struct source_lane *l, struct source_item *it)
{
	struct source_small m;
	int ret;

	m.end = (struct record_file_end){0};
	m.xattrs = NULL;
	m.removal = NULL;
	m.hole = false;
	ret = can_read_into_block(l, it) ? send_read_into_block(l, it, &m) : 2;
	if (ret == 1) {
		item_close(it);
		return item_send(l, it);
	}
	if (ret <= 0)
		return ret;
	if (read_small(l, it, &m) || read_small_extras(l, it, &m) || check_small(it) ||
	    item_removal(l, it, &m.removal)) {
		ret = item_report_failed(l, it);
	} else {
		item_close(it);
		ret = is_same_at_sink(l, it, &m) ? send_same(l, it, &m) : send_small(l, it, &m);
	}
	xattrs_free(m.xattrs);
	removal_free(m.removal);
	return ret;
}
