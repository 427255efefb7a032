/* SPDX-License-Identifier: Apache-2.0 */

/* Files that do not fit whole into one block, from their first piece to their FILE_END. */

#include "copy/source/source_impl.h"

#include "base/fail.h"

int source_add_file(struct source_lane *l, struct source_file *f)
{
	struct source *s = l->source;
	struct tally *t = s->copy->tally;
	uint64_t size = f->stream && f->stream->size ? f->stream->size : f->size;

	if (f->id == 0 && source_take_id(l, &f->id)) {
		source_file_free(f);
		return -1;
	}
	pthread_mutex_lock(&s->copy->lock);
	ids_file(&s->ids, f->id)->object = f;
	ids_set(&s->ids, f->id, LIVE_FILE);
	atomic_store(&f->left, f->flags & FILE_STREAM ? UINT64_MAX : f->size);
	s->unfinished++;
	s->large.count++;
	s->large.unsized |= (f->flags & FILE_STREAM) && !(f->stream && f->stream->size);
	s->kind = f->fd < 0 ? KIND_MEMORY : f->flags & FILE_STREAM ? stage_kind_of(f->fd) : s->kind;
	atomic_fetch_add(&t->total, size);
	*s->large.open_end = f;
	s->large.open_end = &f->next_open;
	atomic_store(&s->large.is_open, true);
	pthread_cond_broadcast(&s->copy->changed);
	pthread_mutex_unlock(&s->copy->lock);
	return 0;
}

static void mark_exhausted(struct source *s, struct source_file *f)
{
	struct source_file **at = &s->large.open;

	if (f->exhausted)
		return;
	f->exhausted = true;
	if (s->large.shortest == f)
		s->large.shortest = NULL;
	while (*at && *at != f)
		at = &(*at)->next_open;
	if (*at) {
		*at = f->next_open;
		if (s->large.open_end == &f->next_open)
			s->large.open_end = at;
		f->next_open = NULL;
		atomic_store(&s->large.is_open, s->large.open != NULL);
	}
	pthread_cond_broadcast(&s->copy->changed);
}

void source_exhaust_file(struct source *s, struct source_file *f, bool why)
{
	pthread_mutex_lock(&s->copy->lock);
	if (why && !f->failed) {
		f->failed = true;
		f->failure = *failed();
		atomic_store(&f->stop, true);
	}
	mark_exhausted(s, f);
	pthread_mutex_unlock(&s->copy->lock);
}

bool source_release_file(struct source *s, struct source_file *f, uint64_t data, uint64_t holes,
			 const uint64_t sum[2])
{
	bool last;

	pthread_mutex_lock(&s->copy->lock);
	f->data += data;
	f->holes += holes;
	sum_add(f->sum, sum);
	f->busy--;
	last = f->exhausted && f->busy == 0 && !f->ending;
	if (last)
		f->ending = true;
	pthread_mutex_unlock(&s->copy->lock);
	return last;
}

void source_requeue_file(struct source *s, struct source_file *f)
{
	f->compared = false;
	/* The sink sent these cells for comparing; it keeps none of them for the new file. */
	known_cells_free(f->known);
	f->known = NULL;
	f->exhausted = false;
	f->ending = false;
	source_file_rewind(f);
	atomic_store(&f->left, f->size);
	atomic_store(&f->stop, false);
	*s->large.open_end = f;
	s->large.open_end = &f->next_open;
	atomic_store(&s->large.is_open, true);
	pthread_cond_broadcast(&s->copy->changed);
}
