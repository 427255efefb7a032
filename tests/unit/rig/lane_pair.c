/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "lane/pool.h"

enum { JOIN_MS = 30000 };

void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
		  NULL);
}

bool wait_count(_Atomic unsigned *count, unsigned least, unsigned ms)
{
	uint64_t end = clock_ms() + ms;

	while (atomic_load(count) < least && clock_ms() < end)
		sleep_ms(1);
	return atomic_load(count) >= least;
}

static struct pair_side *other_of(struct pair_side *s)
{
	return s == &s->pair->source ? &s->pair->sink : &s->pair->source;
}

/* ---- the meddler ------------------------------------------------------------------------- */

struct meddler {
	struct wire wire;
	struct wire *inner;
	struct pair_side *side;
};

/* Does the plan concern this call, the next one of its step? */
static bool is_time(struct meddler *m, enum step step)
{
	const struct plan *plan = &m->side->pair->plan;
	unsigned n = m->side->steps[step]++;

	return plan->deed != DEED_NONE && plan->step == step && n >= plan->at &&
	       n < plan->at + (plan->times ? plan->times : 1);
}

/*
 * A wire that breaks before the other end has its own is a failed attempt, which a session repeats.
 * These tests need a wire that breaks, so they wait.
 */
static void wait_other_end(struct pair_side *s)
{
	const struct pair_side *other = other_of(s);
	struct pair *p = s->pair;
	uint64_t end = clock_ms() + JOIN_MS;

	pthread_mutex_lock(&p->lock);
	while (other->has < s->has && !lane_aborted(s->lane) && clock_ms() < end) {
		struct timespec until = clock_after(5);

		pthread_cond_timedwait(&p->changed, &p->lock, &until);
	}
	pthread_mutex_unlock(&p->lock);
}

static int cut(struct meddler *m)
{
	wait_other_end(m->side);
	return fail_as(OUT_PEER_LOST, "%s: cut by the test", m->wire.name);
}

static bool cuts_before(const struct meddler *m, bool now)
{
	return now && m->side->pair->plan.deed == DEED_CUT_BEFORE;
}

static bool cuts_after(const struct meddler *m, bool now)
{
	return now && m->side->pair->plan.deed == DEED_CUT_AFTER;
}

/* Both ends have stated their depths for this wire, and state others only for the next one. */
static void check_depth(struct meddler *m, const struct block *b)
{
	struct pair *p = m->side->pair;
	uint64_t in_flight = b->number - lane_stored(p->source.lane) + 1;

	if (in_flight > lane_stated_depth(p->source.lane) ||
	    (in_flight > lane_stated_depth(p->sink.lane) && m->inner->depth))
		atomic_store(&p->exceeded, true);
}

static int meddler_send(struct wire *w, struct block *b)
{
	struct meddler *m = (struct meddler *)w;
	bool now = is_time(m, STEP_SEND);

	check_depth(m, b);

	if (cuts_before(m, now))
		return cut(m);
	if (m->inner->ops->send(m->inner, b))
		return -1;
	return cuts_after(m, now) ? cut(m) : 0;
}

static int meddler_credit(struct wire *w, uint64_t least, uint64_t *stored)
{
	struct meddler *m = (struct meddler *)w;
	bool now = is_time(m, STEP_CREDIT);

	if (cuts_before(m, now))
		return cut(m);
	if (m->inner->ops->credit(m->inner, least, stored))
		return -1;
	if (now && m->side->pair->plan.deed == DEED_CREDIT_MORE)
		*stored += 1000000;
	if (now && m->side->pair->plan.deed == DEED_CREDIT_BACK)
		*stored = 1;
	return cuts_after(m, now) ? cut(m) : 0;
}

static int meddler_post(struct wire *w, struct block *b)
{
	struct meddler *m = (struct meddler *)w;
	bool now = is_time(m, STEP_POST);

	if (cuts_before(m, now))
		return cut(m);
	if (m->inner->ops->post(m->inner, b))
		return -1;
	return cuts_after(m, now) ? cut(m) : 0;
}

static void forge(struct block *b, enum deed deed, uint32_t room)
{
	uint8_t *bytes = b->data - LANE_HEAD;
	struct head h;

	if (head_decode(bytes, room, &h))
		return;
	h.lane ^= deed == DEED_FORGE_LANE;
	h.epoch += deed == DEED_FORGE_EPOCH;
	h.number += deed == DEED_FORGE_NUMBER;
	if (deed == DEED_FORGE_LEN)
		h.len = room + 1;
	if (deed == DEED_FORGE_KIND)
		h.kind = 7;
	head_encode(&h, bytes);
}

static void spoil(struct meddler *m, struct block *b)
{
	enum deed deed = m->side->pair->plan.deed;

	if (deed == DEED_DAMAGE_DATA)
		b->data[b->len / 2] ^= 4;
	else if (deed == DEED_DAMAGE_HEAD)
		b->data[-LANE_HEAD + 20] ^= 4;
	else if (deed >= DEED_FORGE_LANE && deed <= DEED_FORGE_KIND)
		forge(b, deed, lane_block_size(m->side->lane));
}

static int meddler_recv(struct wire *w, bool wait, struct block **b)
{
	struct meddler *m = (struct meddler *)w;
	bool now = wait && is_time(m, STEP_RECV);

	if (cuts_before(m, now))
		return cut(m);
	if (m->inner->ops->recv(m->inner, wait, b))
		return -1;
	/* Only blocks count, so that a plan means the same for any timing. */
	if (!wait && *b)
		now = is_time(m, STEP_RECV);
	if (cuts_before(m, now) || cuts_after(m, now))
		return cut(m);
	if (now && *b)
		spoil(m, *b);
	return 0;
}

static int meddler_grant(struct wire *w, uint64_t stored)
{
	struct meddler *m = (struct meddler *)w;
	bool now = is_time(m, STEP_GRANT);

	if (cuts_before(m, now))
		return cut(m);
	if (m->inner->ops->grant(m->inner, stored))
		return -1;
	return cuts_after(m, now) ? cut(m) : 0;
}

static void meddler_break(struct wire *w)
{
	struct meddler *m = (struct meddler *)w;

	m->inner->ops->break_(m->inner);
}

static void meddler_close(struct wire *w)
{
	struct meddler *m = (struct meddler *)w;

	m->inner->ops->close(m->inner);
	free(m);
}

static const struct wire_ops meddler_ops = {
	.send = meddler_send,
	.credit = meddler_credit,
	.post = meddler_post,
	.recv = meddler_recv,
	.grant = meddler_grant,
	.break_ = meddler_break,
	.close = meddler_close,
};

static struct wire *meddle(struct pair_side *side, struct wire *inner)
{
	struct meddler *m = calloc(1, sizeof *m);

	if (!m)
		abort();
	m->wire.ops = &meddler_ops;
	m->wire.window = inner->window;
	m->wire.depth = inner->depth;
	/* A backend without hellos cannot tell. */
	m->wire.sealed = inner->sealed || lane_demands_seal(side->lane);
	if (!inner->depth)
		atomic_store(&side->pair->mute, true);
	m->wire.exposed = inner->exposed || side->pair->plan.exposed;
	memcpy(m->wire.name, inner->name, sizeof m->wire.name);
	m->inner = inner;
	m->side = side;
	return &m->wire;
}

/* ---- the part of a session ------------------------------------------------------------------- */

/* Announce that this side wants a wire of this epoch, and wait until the other side does, too. */
static int meet(struct pair_side *s, uint32_t epoch, uint64_t *stored)
{
	struct pair *p = s->pair;
	struct pair_side *other = other_of(s);
	uint64_t end = clock_ms() + JOIN_MS;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	s->wants = (uint64_t)epoch + 1;
	if (s->side == LANE_SINK)
		p->stored = lane_stored(s->lane) + (p->plan.lie_stored ? 1000000 : 0);
	pthread_cond_broadcast(&p->changed);
	while (other->wants < s->wants) {
		struct timespec until = clock_after(5);

		if (lane_aborted(s->lane) || clock_ms() > end) {
			rc = fail_as(OUT_CONNECT, "the other end does not come");
			break;
		}
		pthread_cond_timedwait(&p->changed, &p->lock, &until);
	}
	*stored = p->stored;
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static void state_depth(struct pair_side *s, uint32_t epoch)
{
	const struct plan *plan = &s->pair->plan;
	uint32_t depth = s->side == LANE_SOURCE ? plan->source_states : plan->sink_states;

	if (s->side == LANE_SINK && epoch > 0 && plan->sink_states_later)
		depth = plan->sink_states_later;
	if (depth)
		lane_limit_depth(s->lane, depth);
}

static int pair_mend(void *ctx, struct lane *l, uint32_t epoch, const char *why)
{
	struct pair_side *s = ctx;
	struct pair *p = s->pair;
	struct wire *w;
	uint64_t stored;

	state_depth(s, epoch);
	lane_demand_seal(l, p->backend->cipher != 0);
	if (epoch > 0 && !p->plan.alone)
		lane_break(other_of(s)->lane, epoch - 1, why);
	if (meet(s, epoch, &stored))
		return -1;
	if (p->backend->join(p->state, l, epoch, &p->key, clock_ms() + JOIN_MS, &w))
		return -1;
	pthread_mutex_lock(&p->lock);
	s->has = (uint64_t)epoch + 1;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->plan.abort_attach)
		lane_abort(l);
	return lane_attach(l, meddle(s, w), stored);
}

int pair_open(struct pair *p, const struct backend *b, void *state, unsigned index, uint32_t depth,
	      uint32_t block_size, const struct plan *plan)
{
	struct lane_setup setup = {
		.index = index,
		.depth = depth,
		.block_size = block_size,
		.timeout_ms = plan ? plan->timeout_ms : 0,
		.rdma_op = b->op,
		.cipher = b->cipher,
		.compress = b->compress,
		.rekey_bytes = b->rekey_bytes,
		.key = &p->key,
		.mend = pair_mend,
	};
	pthread_condattr_t attr;

	*p = (struct pair){.backend = b, .state = state};
	if (plan)
		p->plan = *plan;
	memset(p->key.secret, 7, sizeof p->key.secret);
	memset(p->key.nonces, 8, sizeof p->key.nonces);
	p->source.pair = p->sink.pair = p;
	p->source.side = setup.side = LANE_SOURCE;
	setup.mend_ctx = &p->source;
	if (lane_open(&setup, &p->source.lane))
		return -1;
	p->sink.side = setup.side = LANE_SINK;
	setup.mend_ctx = &p->sink;
	if (lane_open(&setup, &p->sink.lane)) {
		lane_close(p->source.lane);
		return -1;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

void pair_end(struct pair *p)
{
	atomic_store(&p->over, true);
	lane_abort(p->source.lane);
	lane_abort(p->sink.lane);
}

void pair_close(struct pair *p)
{
	lane_close(p->source.lane);
	lane_close(p->sink.lane);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
}

/* The first failure is the session's, and ends it. */
static void pair_failed(struct pair *p, const char *by)
{
	if (!atomic_load(&p->over)) {
		pthread_mutex_lock(&p->lock);
		if (p->first.code == OUT_DONE) {
			p->first = *failed();
			p->first_by = by;
		}
		pthread_mutex_unlock(&p->lock);
	}
	lane_abort(p->source.lane);
	lane_abort(p->sink.lane);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

/* Byte k of block i. */
static uint8_t byte_of(unsigned i, uint32_t k)
{
	return (uint8_t)((i * 2654435761u + (k >> 3) * 40503u) >> (k & 7));
}

static void fill(struct block *b, unsigned i, uint32_t len)
{
	b->kind = i % 5 == 0 ? BLOCK_RECORDS : BLOCK_EXTENT;
	b->file = i ^ 0x5a5a;
	b->pos = (uint64_t)i * 4194304 + 17;
	b->len = len;
	for (uint32_t k = 0; k < len; k++)
		b->data[k] = byte_of(i, k);
}

static void *job_done(struct job *j, int rc, const char *by)
{
	j->rc = rc;
	if (rc) {
		j->failure = *failed();
		pair_failed(j->pair, by);
	}
	return NULL;
}

void *source_job(void *arg)
{
	struct job *j = arg;
	struct lane *l = j->pair->source.lane;
	uint32_t size = lane_block_size(l);
	int owed = 0;

	for (unsigned i = 0; i < j->blocks || (j->more && atomic_load(j->more)); i++) {
		struct block *b;

		if (lane_get(l, &b))
			return job_done(j, -1, "get");
		fill(b, i, j->size ? j->size(i, size) : size);
		if (i % 3 == 0)
			block_seal(b);
		if (lane_send(l, b))
			return job_done(j, -1, "send");
		atomic_fetch_add(&j->done, 1);
	}
	j->blocks = atomic_load(&j->done);
	while (j->tends && (owed = lane_tend(l)) > 0)
		sleep_ms(1);
	if (owed < 0)
		return job_done(j, -1, "tend");
	if (lane_flush(l))
		return job_done(j, -1, "flush");
	j->stored_at_flush = lane_stored(j->pair->sink.lane);
	return job_done(j, 0, "");
}

/* Records of an exposed wire are out of its reach, and so is what was compressed; other blocks are
 * where they arrived. */
static bool is_in_place(const struct job *j, const struct block *b)
{
	const struct pool *p = lane_pool(j->pair->sink.lane);
	bool in_pool = b->data >= p->base && b->data < p->base + p->bytes;

	bool copied = b->kind == BLOCK_RECORDS || j->pair->backend->cipher;

	return in_pool != ((j->pair->plan.exposed && copied) || b->wire_len < b->len);
}

static void check(struct job *j, const struct block *b, unsigned i)
{
	struct lane *l = j->pair->sink.lane;
	uint32_t size = lane_block_size(l);
	uint32_t len = j->size ? j->size(i, size) : size;
	uint32_t k = 0;

	if (j->wrong[0] != '\0')
		return;
	if (b->file != (i ^ 0x5a5a) || b->pos != (uint64_t)i * 4194304 + 17 || b->len != len ||
	    b->kind != (i % 5 == 0 ? BLOCK_RECORDS : BLOCK_EXTENT)) {
		snprintf(j->wrong, sizeof j->wrong, "block %u: file %u pos %llu len %u kind %u", i,
			 b->file ^ 0x5a5a, (unsigned long long)b->pos, b->len, b->kind);
		return;
	}
	if (j->pair->plan.exposed && !is_in_place(j, b)) {
		snprintf(j->wrong, sizeof j->wrong, "block %u: is in the wrong memory", i);
		return;
	}
	while (k < len && b->data[k] == byte_of(i, k))
		k++;
	if (k < len)
		snprintf(j->wrong, sizeof j->wrong, "block %u: byte %u differs", i, k);
}

void *sink_job(void *arg)
{
	struct job *j = arg;
	struct lane *l = j->pair->sink.lane;

	for (unsigned i = 0;; i++) {
		struct block *b;

		if (lane_recv(l, &b))
			return job_done(j, -1, "recv");
		atomic_fetch_add(&j->held, 1);
		check(j, b, i);
		if (j->hold_ms > 0 && i == j->hold_at)
			sleep_ms(j->hold_ms);
		while (j->gate && !atomic_load(j->gate) && !lane_aborted(l))
			sleep_ms(1);
		if (lane_put(l, b))
			return job_done(j, -1, "put");
		atomic_fetch_add(&j->done, 1);
	}
}

void job_start(struct job *j, void *(*run)(void *))
{
	if (pthread_create(&j->thread, NULL, run, j) != 0)
		abort();
}

bool job_join(struct job *j, unsigned ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	return pthread_timedjoin_np(j->thread, NULL, &until) == 0;
}
