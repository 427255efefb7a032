/* SPDX-License-Identifier: Apache-2.0 */

/* The block that a lane fills.  A file is published to other threads right before its block is
 * sent. */

#include "copy/source/source_impl.h"

#include <string.h>

/* ---- ids ----------------------------------------------------------------------------- */

int source_take_id(struct source_lane *l, uint32_t *id)
{
	struct source *s = l->source;
	int ret = 0;

	if (l->next_id == l->end_id) {
		pthread_mutex_lock(&s->copy->lock);
		ret = ids_take(&s->ids, &l->next_id, &l->end_id);
		pthread_mutex_unlock(&s->copy->lock);
	}
	if (ret == 0)
		*id = l->next_id++;
	return ret;
}

void source_return_id(struct source_lane *l, uint32_t id)
{
	if (id && id + 1 == l->next_id)
		l->next_id--;
}

/* Lock held. */
static void publish_one(struct source *s, const struct source_unpublished *d)
{
	*ids_file(&s->ids, d->id) = d->file;
	ids_set(&s->ids, d->id, d->kind);
	switch (d->kind) {
	case LIVE_SMALL:
		s->unfinished++;
		s->ended.files++;
		s->ended.bytes += d->file.size;
		sum_add(s->ended.digest, d->file.sum);
		break;
	case LIVE_OTHER:
		s->unfinished++;
		s->ended.others++;
		break;
	default:
		s->asides.count++;
	}
}

void source_publish_locked(struct source_lane *l)
{
	for (unsigned i = 0; i < l->unpublished_count; i++)
		publish_one(l->source, &l->unpublished[i]);
	l->unpublished_count = 0;
}

static void publish_queued(struct source_lane *l)
{
	struct source *s = l->source;

	if (l->unpublished_count == 0)
		return;
	pthread_mutex_lock(&s->copy->lock);
	source_publish_locked(l);
	pthread_mutex_unlock(&s->copy->lock);
}

void source_queue_unpublished(struct source_lane *l, const struct source_unpublished *d)
{
	if (l->unpublished_count == UNPUBLISHED_MAX)
		publish_queued(l);
	l->unpublished[l->unpublished_count++] = *d;
}

/* ---- blocks -------------------------------------------------------------------------- */

int source_get_block(struct source_lane *l)
{
	if (l->block)
		return 0;
	if (l->spares > 0) {
		l->block = l->spare[0];
		l->spares--;
		memmove(l->spare, l->spare + 1, l->spares * sizeof *l->spare);
		lane_begin(l->block);
	} else if (lane_get(l->lane, &l->block)) {
		return -1;
	}
	l->records = writer_of(l->block->data, lane_block_size(l->lane));
	return 0;
}

int source_get_blocks(struct source_lane *l, uint64_t bytes, unsigned *count)
{
	uint64_t most = bytes / lane_block_size(l->lane), half = lane_depth(l->lane) / 2;
	struct block *b;

	/* The other half is in flight while these are read. */
	if (most > half)
		most = half;

	if (source_get_block(l))
		return -1;
	while (l->spares < SPARE_MAX && l->spares + 1 < most && (b = lane_more(l->lane)))
		l->spare[l->spares++] = b;
	*count = l->spares + 1;
	return 0;
}

int source_pace(struct source_lane *l, uint32_t len)
{
	if (l->paced)
		return 0;
	l->paced = true;
	return session_pace(l->source->session, len, &l->use.ns_paced);
}

int source_send(struct source_lane *l, enum block_kind kind, uint32_t file, uint64_t pos,
		uint32_t len)
{
	struct block *b = l->block;

	b->kind = (uint8_t)kind;
	b->file = file;
	b->pos = pos;
	b->len = len;
	l->block = NULL;
	l->unconfirmed = true;
	l->records = (struct writer){0};
	if (source_pace(l, lane_pack(l->lane, b)))
		return -1;
	l->paced = false;
	return lane_send(l->lane, b);
}

int source_send_records(struct source_lane *l)
{
	struct tally *t = l->source->copy->tally;

	publish_queued(l);
	if (l->small_bytes > 0) {
		atomic_fetch_add(&t->total, l->small_bytes);
		tally_bytes(t, l->small_bytes);
		l->small_bytes = 0;
	}
	l->records_sent = true;
	l->compared_count = 0;
	/* A block of questions alone is a turn, too. */
	l->large_due = l->small_count > 0 ? (uint64_t)l->small_count * SMALL_WEIGHT : 1;
	l->small_count = 0;
	return source_send(l, BLOCK_RECORDS, 0, 0, (uint32_t)l->records.used);
}

int source_reserve_room(struct source_lane *l, size_t len)
{
	if (l->block && l->records.size - l->records.used < len && source_send_records(l))
		return -1;
	return source_get_block(l);
}
