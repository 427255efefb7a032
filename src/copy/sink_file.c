/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/sink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"

static struct sink_file **slot(struct sink *s, uint32_t id)
{
	struct sink_file **at = &s->files[id % SINK_BUCKETS];

	while (*at && (*at)->r.id != id)
		at = &(*at)->next;
	return at;
}

static const char *shown(const struct sink_file *f)
{
	return f->placement ? placement_name(f->placement) : f->out.name ? f->out.name : f->r.name;
}

/* Lock held. */
static void wake(struct sink *s, const struct sink_file *f)
{
	for (unsigned i = 0; i < LANE_COUNT_MAX; i++) {
		if (s->lanes[i].waits == f)
			pthread_cond_signal(&s->lanes[i].turn);
	}
}

/* Lock held: wait for something about f to change. */
static void wait_for(struct sink_lane *l, const struct sink_file *f)
{
	l->waits = f;
	pthread_cond_wait(&l->turn, &l->sink->copy->lock);
	l->waits = NULL;
}

static void file_free(struct sink_file *f)
{
	digest_free(f->digest);
	free(f);
}

/* ---- results ------------------------------------------------------------------------- */

static int send_result(struct sink *s, uint32_t id, const struct failure *f)
{
	struct msg_file_result m = {.file = id, .code = (uint8_t)(f ? f->code : OUT_DONE)};
	uint8_t body[sizeof m + 16];
	struct writer w = writer_of(body, sizeof body);

	if (f)
		snprintf(m.text, sizeof m.text, "%s", f->text);
	msg_file_result_encode(&w, &m);
	return session_send(s->session, MSG_FILE_RESULT, body, w.used);
}

/*
 * The file failed here, with this thread's failure: from now on its bytes are dropped, and the
 * source hears of it at once.  -1: it was no fault of the file.
 */
static int give_up(struct sink *s, struct sink_file *f)
{
	struct failure why;
	bool first, tell;
	char name[NAME_MAX_WIRE];

	if (copy_interrupted(s->copy))
		return -1;
	why = *failed();
	if (why.code == OUT_PROTOCOL)
		return -1;
	pthread_mutex_lock(&s->copy->lock);
	first = !f->told;
	f->told = true;
	f->state = SINK_FAILED;
	if (first) {
		f->failure = why;
		copy_count_failure(s->copy, &why, false);
	}
	tell = first && (f->r.flags & FILE_MANY);
	snprintf(name, sizeof name, "%s", shown(f));
	wake(s, f);
	pthread_mutex_unlock(&s->copy->lock);
	if (tell)
		copy_tell(s->copy, name, &why);
	return first ? send_result(s, f->r.id, &why) : 0;
}

/* ---- beginning ----------------------------------------------------------------------- */

static int begin_stream(struct sink *s, struct sink_file *f)
{
	const struct stream *stream = &s->o->stream;

	outlet_of(stream->fd, stream->name, &f->out);
	return 0;
}

static int begin_named(struct sink *s, struct sink_file *f)
{
	if (!s->o->quiet_names) {
		if (f->r.want >= s->o->count)
			return fail_as(OUT_PROTOCOL, "the peer answers what was not asked for");
		if (!name_answers(f->r.name, s->o->wants[f->r.want]))
			return fail_as(OUT_PROTOCOL, "the peer sends %.300s, which is not %.300s",
				       f->r.name, s->o->wants[f->r.want]);
	}
	if (place_begin(s->place, &f->r, &f->placement))
		return -1;
	outlet_of(placement_fd(f->placement), placement_name(f->placement), &f->out);
	f->out.fresh = placement_fresh(f->placement);
	f->out.sized = placement_sized(f->placement);
	return 0;
}

static int begin(struct sink *s, struct sink_file *f)
{
	if (s->place ? begin_named(s, f) : begin_stream(s, f))
		return -1;
	f->out.sparse = s->o->sparse;
	f->out.stopper = (struct stopper){.stop = copy_stopped, .ctx = s->copy};
	f->ordered = (f->r.flags & (FILE_STREAM | FILE_ORDERED)) || !f->out.seekable;
	if (f->ordered) {
		f->digest = digest_new();
		return f->digest ? 0 : -1;
	}
	return 0;
}

static bool same_file(const struct record_file *a, const struct record_file *b)
{
	return a->want == b->want && a->flags == b->flags && a->mode == b->mode &&
	       a->size == b->size && a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns &&
	       strcmp(a->name, b->name) == 0;
}

/* Lock held. */
static int announce_again(struct sink_lane *l, struct sink_file *f, const struct record_file *r)
{
	uint64_t bit = UINT64_C(1) << l->index;

	if ((f->announced & bit) || !same_file(&f->r, r))
		return fail_as(OUT_PROTOCOL, "the peer announces file %u twice", r->id);
	f->announced |= bit;
	/* Nobody finishes it while somebody waits for it. */
	f->busy++;
	while (f->state == SINK_OPENING && !atomic_load(&l->sink->copy->failed))
		wait_for(l, f);
	return 0;
}

/* Lock held. */
static int announce_first(struct sink_lane *l, const struct record_file *r, struct sink_file **out)
{
	struct sink *s = l->sink;
	struct sink_file *f;

	if (s->copy->end_came)
		return fail_as(OUT_PROTOCOL, "the peer sends a file after END");
	if (s->count >= SINK_OPEN_MAX)
		return fail_as(OUT_PROTOCOL, "the peer has more than %d files open", SINK_OPEN_MAX);
	if (!s->place && s->stream_taken)
		return fail_as(OUT_PROTOCOL, "the peer sends a second file into a stream");
	f = calloc(1, sizeof *f);
	if (!f)
		return fail_as(OUT_MEMORY, "create %s: %m", r->name);
	s->stream_taken = true;
	f->r = *r;
	f->announced = UINT64_C(1) << l->index;
	f->busy = 1;
	*slot(s, r->id) = f;
	s->count++;
	*out = f;
	return 0;
}

static int finish_if_complete(struct sink *s, struct sink_file *f);

static int open_new(struct sink *s, struct sink_file *f)
{
	int ret = begin(s, f);

	pthread_mutex_lock(&s->copy->lock);
	f->state = ret ? SINK_FAILED : SINK_OPEN;
	wake(s, f);
	pthread_mutex_unlock(&s->copy->lock);
	return ret ? give_up(s, f) : 0;
}

int sink_take_file(struct sink_lane *l, const struct record_file *r)
{
	struct sink *s = l->sink;
	struct sink_file *f, *new = NULL;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	f = *slot(s, r->id);
	ret = f ? announce_again(l, f, r) : announce_first(l, r, &new);
	pthread_mutex_unlock(&s->copy->lock);
	if (ret)
		return -1;
	if (new &&open_new(s, new))
		return -1;
	return finish_if_complete(s, new ? new : f);
}

/* ---- storing ------------------------------------------------------------------------- */

/* Lock held: may this piece come here and now? */
static int admit(struct sink_lane *l, struct sink_file *f, const struct piece *p)
{
	uint64_t all;

	if (!f || !(f->announced & (UINT64_C(1) << l->index)))
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of a file it did not announce");
	if (p->pos > (uint64_t)INT64_MAX - p->len)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes beyond what a file can hold");
	if (!(f->r.flags & FILE_STREAM) && p->pos + p->len > f->r.size)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes beyond the end of %s", shown(f));
	all = f->data + f->holes + p->len;
	if (all > INT64_MAX || (!(f->r.flags & FILE_STREAM) && all > f->r.size))
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s twice", shown(f));
	if (!p->bytes && !(f->r.flags & FILE_SPARSE))
		return fail_as(OUT_PROTOCOL, "the peer sends a hole of %s, which has none",
			       shown(f));
	*(p->bytes ? &f->data : &f->holes) += p->len;
	if (f->ended && (f->data > f->end.data || f->holes > f->end.holes))
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s after its end", shown(f));
	return 0;
}

/* Lock held: wait until it is this piece's turn, or it doesn't matter any more.  Of two at one
 * position only the first has its turn. */
static int await_turn(struct sink_lane *l, struct sink_file *f, const struct piece *p)
{
	while (f->state == SINK_OPEN && f->ordered && (f->taken || p->pos > f->turn) &&
	       !atomic_load(&l->sink->copy->failed))
		wait_for(l, f);
	if (atomic_load(&l->sink->copy->failed))
		return -1;
	if (f->state == SINK_OPEN && f->ordered && p->pos < f->turn)
		return fail_as(OUT_PROTOCOL, "the peer sends bytes of %s twice", shown(f));
	f->taken = f->ordered;
	return 0;
}

/* The digest of a file stored in any order: a cell's bytes come one after the other on one
 * lane.  What is complete is added to sum. */
static void hash_cell(struct sink_lane *l, const struct sink_file *f, const struct piece *p,
		      uint64_t sum[2])
{
	uint64_t end = p->pos + p->len;
	bool last = end == f->r.size;

	if (l->digest_of != f->r.id)
		digest_reset(l->digest);
	l->digest_of = f->r.id;
	if (p->block)
		digest_add_block(l->digest, p->block, last);
	else
		digest_add(l->digest, p->pos, p->bytes, p->len);
	if (last || end % CELL == 0) {
		digest_sum(l->digest, sum);
		digest_reset(l->digest);
	}
}

static int store(struct sink_lane *l, struct sink_file *f, const struct piece *p, uint64_t sum[2])
{
	if (!p->bytes)
		return outlet_zeros(&f->out, p->pos, p->len);
	if (!f->ordered)
		hash_cell(l, f, p, sum);
	else if (p->block)
		digest_add_block(f->digest, p->block, false);
	else
		digest_add(f->digest, p->pos, p->bytes, p->len);
	return outlet_store(&f->out, p->pos, p->bytes, p->len);
}

int sink_take_piece(struct sink_lane *l, const struct piece *p)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	uint64_t sum[2] = {0, 0};
	bool dropped;
	int ret;

	pthread_mutex_lock(&s->copy->lock);
	f = *slot(s, p->id);
	ret = admit(l, f, p);
	if (ret == 0) {
		/* Nobody finishes it while somebody waits for his turn. */
		f->busy++;
		ret = await_turn(l, f, p);
	}
	dropped = ret == 0 && f->state == SINK_FAILED;
	pthread_mutex_unlock(&s->copy->lock);
	if (ret)
		return -1;
	if (!dropped && store(l, f, p, sum) && give_up(s, f))
		return -1;
	if (!dropped)
		tally_bytes(s->copy->tally, p->len);
	pthread_mutex_lock(&s->copy->lock);
	sum_add(f->sum, sum);
	if (f->ordered) {
		f->taken = false;
		f->turn = p->pos + p->len;
		wake(s, f);
	}
	pthread_mutex_unlock(&s->copy->lock);
	return finish_if_complete(s, f);
}

/* ---- the end of a file --------------------------------------------------------------- */

static int check_end(struct sink_file *f)
{
	const struct record_file_end *e = &f->end;
	uint64_t sum[2];

	if (e->data + e->holes != e->size || (!(f->r.flags & FILE_STREAM) && e->size != f->r.size))
		return fail_as(OUT_PROTOCOL, "the peer ends %s with bytes missing", shown(f));
	if (f->ordered) {
		digest_sum(f->digest, sum);
		sum_add(f->sum, sum);
	}
	if (f->sum[0] != e->digest[0] || f->sum[1] != e->digest[1])
		return fail_as(OUT_INTEGRITY,
			       "%s: the digest of what came differs from the source's", shown(f));
	return 0;
}

static int finish_stream(struct sink *s, struct sink_file *f)
{
	const struct stream *stream = &s->o->stream;

	outlet_leave(&f->out, f->end.size);
	if (s->o->fsync && fsync(stream->fd) && errno != EINVAL && errno != EROFS)
		return fail("fsync %s: %m", stream->name);
	if (stream->close_at_end && close(stream->fd))
		return fail("close %s: %m", stream->name);
	return stream->finish ? stream->finish(stream->ctx) : 0;
}

/* Everything came, and nothing failed until now. */
static int finish_good(struct sink *s, struct sink_file *f)
{
	struct placement *t = f->placement;

	if (check_end(f))
		return -1;
	if (!t)
		return finish_stream(s, f);
	outlet_leave(&f->out, f->end.size);
	/* It has a name of its own in failures; shown() must do without. */
	f->placement = NULL;
	f->out.name = NULL;
	return place_finish(t, f->end.size);
}

static int finish_bad(struct sink *s, struct sink_file *f)
{
	struct failure source = {.code = outcome_from(f->end.code)};
	bool told = f->told;

	if (f->placement)
		place_drop(f->placement, false);
	f->placement = NULL;
	if (told)
		return 0;
	snprintf(source.text, sizeof source.text, "%s", f->end.text);
	pthread_mutex_lock(&s->copy->lock);
	copy_count_failure(s->copy, &source, true);
	pthread_mutex_unlock(&s->copy->lock);
	return send_result(s, f->r.id, &source);
}

/* Lock held. */
static void count_end(struct sink *s, const struct sink_file *f, bool good)
{
	const struct record_file_end *e = &f->end;

	if (e->code != OUT_DONE) {
		s->ended.failed++;
	} else {
		s->ended.files++;
		s->ended.bytes += e->size;
		sum_add(s->ended.digest, e->digest);
	}
	if (!good) {
		s->stored.failed++;
		return;
	}
	s->stored.files++;
	s->stored.bytes += e->size;
	sum_add(s->stored.digest, e->digest);
	atomic_fetch_add(&s->copy->tally->files, 1);
}

/* Nobody else has f any more. */
static int finish(struct sink *s, struct sink_file *f)
{
	bool good = f->state == SINK_OPEN && f->end.code == OUT_DONE;
	int ret = 0;

	if (good && finish_good(s, f)) {
		good = false;
		ret = give_up(s, f);
	}
	if (ret == 0 && !good)
		ret = finish_bad(s, f);
	if (ret == 0) {
		pthread_mutex_lock(&s->copy->lock);
		count_end(s, f, good);
		pthread_mutex_unlock(&s->copy->lock);
	}
	if (ret == 0 && good)
		ret = send_result(s, f->r.id, NULL);
	if (f->placement)
		place_drop(f->placement, false);
	file_free(f);
	return ret;
}

/* Lock held. */
static bool complete(const struct sink_file *f)
{
	return f->ended && f->busy == 0 && f->data == f->end.data && f->holes == f->end.holes &&
	       __builtin_popcountll(f->announced) == f->end.lanes;
}

/* This lane has done with f for now; whoever is the last one finishes it. */
static int finish_if_complete(struct sink *s, struct sink_file *f)
{
	bool mine;

	pthread_mutex_lock(&s->copy->lock);
	f->busy--;
	mine = complete(f) && !atomic_load(&s->copy->failed);
	if (mine) {
		*slot(s, f->r.id) = f->next;
		s->count--;
	}
	pthread_mutex_unlock(&s->copy->lock);
	return mine ? finish(s, f) : 0;
}

int sink_take_end(struct sink_lane *l, const struct record_file_end *r)
{
	struct sink *s = l->sink;
	struct sink_file *f;
	int ret = 0;

	pthread_mutex_lock(&s->copy->lock);
	f = *slot(s, r->id);
	if (!f || !(f->announced & (UINT64_C(1) << l->index)))
		ret = fail_as(OUT_PROTOCOL, "the peer ends a file it did not announce");
	else if (f->ended || f->data > r->data || f->holes > r->holes ||
		 __builtin_popcountll(f->announced) > r->lanes)
		ret = fail_as(OUT_PROTOCOL, "the peer ends %s wrongly", shown(f));
	if (ret == 0) {
		f->ended = true;
		f->end = *r;
		f->busy++;
	}
	pthread_mutex_unlock(&s->copy->lock);
	return ret ? -1 : finish_if_complete(s, f);
}

void sink_drop_all(struct sink *s, bool keep)
{
	struct sink_file *f;

	for (unsigned i = 0; i < SINK_BUCKETS; i++) {
		while ((f = s->files[i]) != NULL) {
			s->files[i] = f->next;
			if (f->placement)
				place_drop(f->placement, keep && f->state == SINK_OPEN);
			file_free(f);
		}
	}
}
