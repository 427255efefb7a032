/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/source/source_impl.h"

#include <unistd.h>
#include "base/fail.h"

static int do_job(struct source_lane *l, bool *over)
{
	struct source_file *f = NULL;

	switch (source_pick(l, &f)) {
	case JOB_FAILED:
	case JOB_WAIT:
		return -1;
	case JOB_OVER:
		*over = true;
		return source_send_records(l);
	case JOB_FLUSH:
		return source_send_records(l);
	case JOB_WALK:
		return source_walk(l);
	case JOB_ENTRIES:
		return source_send_entries(l);
	case JOB_ASIDES:
		return source_send_asides(l);
	case JOB_OTHERS:
		return source_send_others(l);
	case JOB_ANNOUNCE:
		return source_announce(l, f);
	case JOB_READ:
		return source_send_piece(l, f);
	}
	return -1;
}

/* Releases what the lane took and did not process. */
static void drop_taken(struct source_lane *l)
{
	struct aside *a;

	while (l->taken_at < l->taken_count)
		walk_piece_done(l->taken[l->taken_at++].piece, 1);
	while ((a = l->asides) != NULL) {
		l->asides = a->next;
		aside_free(a);
	}
	source_use_dir(l, NULL);
}

void *source_lane_run(void *arg)
{
	struct source_lane *l = arg;
	struct copy *c = l->source->copy;
	bool over = false;
	int ret = 0;

	while (ret == 0 && !over) {
		ret = source_get_block(l);
		if (ret == 0)
			ret = do_job(l, &over);
	}
	if (ret == 0)
		ret = lane_flush(l->lane);
	if (ret && !atomic_load(&c->failed))
		session_fail(l->source->session);
	drop_taken(l);
	cpu_time_of(gettid(), &l->use.cpu);
	pthread_mutex_lock(&c->lock);
	l->source->working--;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
