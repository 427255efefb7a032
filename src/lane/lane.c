/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "lane/state.h"

static int check_setup(const struct lane_setup *s)
{
	if (s->index >= LANE_COUNT_MAX || s->depth < LANE_DEPTH_MIN || s->depth > LANE_DEPTH_MAX)
		return fail_as(OUT_USAGE, "lane %u of depth %u: beyond lane %d of depth %d to %d",
			       s->index, s->depth, LANE_COUNT_MAX - 1, LANE_DEPTH_MIN,
			       LANE_DEPTH_MAX);
	if (s->block_size < LANE_BLOCK_MIN || s->block_size > LANE_BLOCK_MAX ||
	    (s->block_size & (s->block_size - 1)) != 0)
		return fail_as(OUT_USAGE, "block size %u is no power of two in %d to %d",
			       s->block_size, LANE_BLOCK_MIN, LANE_BLOCK_MAX);
	return 0;
}

int lane_open(const struct lane_setup *setup, struct lane **out)
{
	struct lane *l;

	if (check_setup(setup))
		return -1;
	l = calloc(1, sizeof *l);
	if (!l)
		return fail_as(OUT_MEMORY, "out of memory for lane %u", setup->index);
	l->setup = *setup;
	if (l->setup.timeout_ms <= 0)
		l->setup.timeout_ms = LANE_TIMEOUT_MS;
	if (l->setup.rdma_op == RDMA_OP_AUTO)
		l->setup.rdma_op = RDMA_OP_SEND;
	l->unstored_end = &l->unstored;
	l->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->abort_fd < 0) {
		fail_as(OUT_MEMORY, "make a descriptor for lane %u: %m", setup->index);
		goto fail;
	}
	if (pool_init(&l->pool, setup->depth, setup->block_size))
		goto fail;
	pthread_mutex_init(&l->lock, NULL);
	*out = l;
	return 0;
fail:
	close_fd(l->abort_fd);
	free(l);
	return -1;
}

static void drop_wire(struct lane *l)
{
	struct wire *w;

	pthread_mutex_lock(&l->lock);
	w = l->wire;
	l->wire = NULL;
	pthread_mutex_unlock(&l->lock);
	if (w)
		w->ops->close(w);
}

void lane_close(struct lane *l)
{
	if (!l)
		return;
	drop_wire(l);
	pthread_mutex_destroy(&l->lock);
	close_fd(l->abort_fd);
	pool_free(&l->pool);
	free(l->copy.data);
	free(l);
}

/* ---- the end of a lane ---------------------------------------------------------------- */

int lane_die(struct lane *l)
{
	if (l->fatal.code == OUT_DONE)
		l->fatal = *failed();
	drop_wire(l);
	return fail_again(&l->fatal);
}

int lane_alive(struct lane *l)
{
	if (l->fatal.code != OUT_DONE)
		return fail_again(&l->fatal);
	if (!lane_aborted(l))
		return 0;
	fail_as(OUT_PEER_LOST, "lane %u was given up", l->setup.index);
	return lane_die(l);
}

void lane_abort(struct lane *l)
{
	atomic_store(&l->aborted, true);
	raise_event(l->abort_fd);
	pthread_mutex_lock(&l->lock);
	if (l->wire)
		l->wire->ops->break_(l->wire);
	pthread_mutex_unlock(&l->lock);
}

bool lane_aborted(const struct lane *l)
{
	return atomic_load(&l->aborted);
}

int lane_abort_fd(const struct lane *l)
{
	return l->abort_fd;
}

/* ---- wires ------------------------------------------------------------------------------ */

/*
 * The peer may find a wire broken before this end's thread has even attached it; so what was
 * told is kept, and counts for the wire of that epoch whenever it comes.
 */
void lane_break(struct lane *l, uint32_t epoch, const char *why)
{
	pthread_mutex_lock(&l->lock);
	l->told = true;
	l->told_epoch = epoch;
	snprintf(l->told_why, sizeof l->told_why, "%s", why);
	if (l->wire && l->epoch == epoch)
		l->wire->ops->break_(l->wire);
	pthread_mutex_unlock(&l->lock);
}

void lane_skip_to(struct lane *l, uint32_t epoch)
{
	pthread_mutex_lock(&l->lock);
	if (epoch > l->epoch)
		l->epoch = epoch;
	pthread_mutex_unlock(&l->lock);
}

int lane_attach(struct lane *l, struct wire *w, uint64_t stored)
{
	uint32_t window;

	drop_wire(l);
	if (l->setup.side == LANE_SOURCE && lane_apply_credit(l, stored)) {
		w->ops->close(w);
		return -1;
	}
	l->granted = lane_stored(l);
	l->damaged_now = false;
	l->attached_ms = clock_ms();
	l->attached_stored = lane_stored(l);
	l->attached_idle = atomic_load(&l->answers_idle);
	if (!atomic_load(&l->sign_ms))
		atomic_store(&l->sign_ms, l->attached_ms);
	atomic_store(&l->mtu, w->mtu);
	atomic_fetch_add_explicit(&l->counts.epochs, 1, memory_order_relaxed);
	pthread_mutex_lock(&l->lock);
	l->wire = w;
	memcpy(l->name, w->name, sizeof l->name);
	l->name[sizeof l->name - 1] = '\0';
	if (lane_aborted(l) || (l->told && l->told_epoch == l->epoch))
		w->ops->break_(w);
	pthread_mutex_unlock(&l->lock);
	window = w->window && w->window < l->setup.depth ? w->window : l->setup.depth;
	atomic_store_explicit(&l->counts.window, (uint64_t)window * l->setup.block_size,
			      memory_order_relaxed);
	lane_look(l);
	return 0;
}

void lane_look(struct lane *l)
{
	uint32_t known = atomic_load_explicit(&l->counts.rtt_us, memory_order_relaxed);
	struct wire *w = l->wire;

	if (w && w->ops->look)
		w->ops->look(w);
	if (w && w->rtt_us && (!known || w->rtt_us < known))
		atomic_store_explicit(&l->counts.rtt_us, w->rtt_us, memory_order_relaxed);
}

int lane_broke(struct lane *l)
{
	const struct failure *f = failed();

	if (lane_aborted(l))
		return lane_alive(l);
	if (f->code == OUT_PROTOCOL)
		return lane_die(l);
	pthread_mutex_lock(&l->lock);
	if (l->told && l->told_epoch == l->epoch && l->told_why[0] != '\0')
		snprintf(l->why, sizeof l->why, "%s", l->told_why);
	else
		snprintf(l->why, sizeof l->why, "%s", f->text);
	pthread_mutex_unlock(&l->lock);
	log_debug("lane %u epoch %u: %s", l->setup.index, l->epoch, l->why);
	drop_wire(l);
	return 0;
}

/* The sink was asked more than once, since an answer may cross the block that it speaks of. */
static void judge_wire(struct lane *l)
{
	l->barren = l->begun && lane_stored(l) == l->attached_stored &&
		    atomic_load(&l->answers_idle) - l->attached_idle > 1;
	l->barren_row = l->barren ? l->barren_row + 1 : 0;
}

/* A peer whose wires come and break again and again without use would keep us for ever. */
static int check_futile(struct lane *l)
{
	uint64_t stored = lane_stored(l);

	if (stored > l->futile_stored ||
	    clock_ms() - l->attached_ms >= (uint64_t)l->setup.timeout_ms) {
		l->futile_stored = stored;
		l->futile = 0;
	}
	if (l->futile++ < FUTILE_MAX)
		return 0;
	return fail_as(OUT_PEER_LOST,
		       "lane %u: %d connections in a row broke before a block was "
		       "through, the last one: %s",
		       l->setup.index, FUTILE_MAX, l->why);
}

static int mend_lane(struct lane *l)
{
	char why[FAIL_TEXT_MAX];

	if (lane_alive(l))
		return -1;
	if (check_futile(l))
		return lane_die(l);
	judge_wire(l);
	pthread_mutex_lock(&l->lock);
	l->epoch += l->begun;
	pthread_mutex_unlock(&l->lock);
	l->begun = true;
	if (l->setup.side == LANE_SINK)
		pool_reset(&l->pool);
	memcpy(why, l->why, sizeof why);
	fail_clear();
	if (l->setup.mend(l->setup.mend_ctx, l, l->epoch, why)) {
		if (failed()->code == OUT_DONE)
			fail_as(OUT_PEER_LOST, "lane %u could not be mended", l->setup.index);
		return lane_aborted(l) ? lane_alive(l) : lane_die(l);
	}
	if (!l->wire) {
		fail_as(OUT_PROTOCOL, "lane %u was mended without a wire", l->setup.index);
		return lane_die(l);
	}
	log_debug("lane %u epoch %u: %s", l->setup.index, l->epoch, l->name);
	return 0;
}

int lane_join(struct lane *l)
{
	while (!l->wire) {
		if (mend_lane(l))
			return -1;
		if (l->setup.side == LANE_SOURCE && lane_resend(l) && lane_broke(l))
			return -1;
	}
	return 0;
}

/* ---- a source asks what its sink does ------------------------------------------------------ */

/* The epoch of a wire that is attached: of no other one may be asked. */
static bool is_attached_at(struct lane *l, uint32_t epoch)
{
	bool is;

	pthread_mutex_lock(&l->lock);
	is = l->wire && l->epoch == epoch;
	pthread_mutex_unlock(&l->lock);
	return is;
}

void lane_held(struct lane *l, uint32_t epoch, bool busy)
{
	if (is_attached_at(l, epoch))
		atomic_fetch_add(busy ? &l->answers_busy : &l->answers_idle, 1);
}

bool lane_check(struct lane *l, uint32_t epoch)
{
	bool busy = !atomic_load(&l->at_wire);

	lane_held(l, epoch, busy);
	return busy;
}

unsigned lane_barren(const struct lane *l)
{
	return l->barren_row;
}

bool lane_had_wire(const struct lane *l)
{
	return atomic_load_explicit(&l->counts.epochs, memory_order_relaxed) > 0;
}

uint64_t lane_sign_ms(const struct lane *l)
{
	return atomic_load(&l->sign_ms);
}

void lane_heard_wire(struct lane *l)
{
	atomic_store_explicit(&l->heard_ms, clock_ms(), memory_order_relaxed);
}

uint64_t lane_heard_ms(const struct lane *l)
{
	return atomic_load_explicit(&l->heard_ms, memory_order_relaxed);
}

uint32_t lane_mtu(const struct lane *l)
{
	return atomic_load(&l->mtu);
}

/* ---- what a lane says of itself ------------------------------------------------------- */

unsigned lane_index(const struct lane *l)
{
	return l->setup.index;
}

enum lane_side lane_side_of(const struct lane *l)
{
	return l->setup.side;
}

uint32_t lane_depth(const struct lane *l)
{
	return l->setup.depth;
}

uint32_t lane_block_size(const struct lane *l)
{
	return l->setup.block_size;
}

int lane_timeout_ms(const struct lane *l)
{
	return l->setup.timeout_ms;
}

enum rdma_op lane_rdma_op(const struct lane *l)
{
	return l->setup.rdma_op;
}

struct pool *lane_pool(struct lane *l)
{
	return &l->pool;
}

uint64_t lane_stored(const struct lane *l)
{
	return atomic_load(&l->stored);
}

uint64_t lane_heard(struct lane *l)
{
	uint64_t heard = lane_stored(l);

	pthread_mutex_lock(&l->lock);
	heard += (uint64_t)l->epoch << 48;
	if (l->wire)
		heard += atomic_load_explicit(&l->wire->heard, memory_order_relaxed);
	pthread_mutex_unlock(&l->lock);
	return heard;
}

uint64_t lane_damaged(const struct lane *l)
{
	return l->damaged_now ? l->damaged : 0;
}

void lane_name(const struct lane *l, char *to, size_t size)
{
	struct lane *locked = (struct lane *)l;

	pthread_mutex_lock(&locked->lock);
	snprintf(to, size, "%s", l->name);
	pthread_mutex_unlock(&locked->lock);
}

void lane_stats(const struct lane *l, struct lane_stats *out)
{
	const struct lane_counts *c = &l->counts;

	*out = (struct lane_stats){
		.blocks = atomic_load_explicit(&c->blocks, memory_order_relaxed),
		.bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed),
		.resent = atomic_load_explicit(&c->resent, memory_order_relaxed),
		.ns_fill = atomic_load_explicit(&c->ns_fill, memory_order_relaxed),
		.ns_send = atomic_load_explicit(&c->ns_send, memory_order_relaxed),
		.ns_free = atomic_load_explicit(&c->ns_free, memory_order_relaxed),
		.ns_block = atomic_load_explicit(&c->ns_block, memory_order_relaxed),
		.ns_store = atomic_load_explicit(&c->ns_store, memory_order_relaxed),
		.window = atomic_load_explicit(&c->window, memory_order_relaxed),
		.rtt_us = atomic_load_explicit(&c->rtt_us, memory_order_relaxed),
		.epochs = atomic_load_explicit(&c->epochs, memory_order_relaxed),
	};
}
