/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "lane/fault.h"
#include "lane/lane_impl.h"

static int check_setup(const struct lane_setup *s)
{
	if (s->index >= LANE_COUNT_MAX || s->depth < LANE_DEPTH_MIN || s->depth > LANE_DEPTH_MAX)
		return fail_as(OUT_USAGE,
			       "lane %u of depth %u: the last lane is %d, depths are %d to %d",
			       s->index, s->depth, LANE_COUNT_MAX - 1, LANE_DEPTH_MIN,
			       LANE_DEPTH_MAX);
	if (s->block_size < LANE_BLOCK_MIN || s->block_size > LANE_BLOCK_MAX ||
	    (s->block_size & (s->block_size - 1)) != 0)
		return fail_as(OUT_USAGE, "block size %u is not a power of two from %d to %d",
			       s->block_size, LANE_BLOCK_MIN, LANE_BLOCK_MAX);
	return 0;
}

static int open_compression(struct lane *l)
{
	const struct lane_setup *s = &l->setup;

	if (!s->compress)
		return 0;
	choice_begin(&l->choice, get_compress_mode(s->compress));
	if (s->side == LANE_SOURCE)
		return compressor_open(get_compress_level(s->compress), s->block_size,
				       &l->compressor);
	return inflater_open(&l->inflater);
}

static void close_compression(struct lane *l)
{
	compressor_close(l->compressor);
	inflater_close(l->inflater);
	free(l->plain.data);
}

int lane_open(const struct lane_setup *setup, struct lane **out)
{
	struct lane *l;

	if (check_setup(setup))
		return -1;
	l = calloc(1, sizeof *l);
	if (!l)
		return fail_as(OUT_MEMORY, "allocate lane %u: %m", setup->index);
	l->setup = *setup;
	if (l->setup.timeout_ms <= 0)
		l->setup.timeout_ms = LANE_TIMEOUT_MS;
	if (l->setup.rdma_op == RDMA_OP_AUTO)
		l->setup.rdma_op = RDMA_OP_SEND;
	atomic_init(&l->stated_depth, setup->depth);
	l->unstored_end = &l->unstored;
	l->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->abort_fd < 0) {
		fail_as(OUT_MEMORY, "create an eventfd for lane %u: %m", setup->index);
		goto fail;
	}
	if (setup->cipher &&
	    cipher_open((enum cipher_kind)setup->cipher, setup->key, setup->index,
			fault_rekey(setup->rekey_bytes ? setup->rekey_bytes : CIPHER_REKEY),
			&l->cipher))
		goto fail;
	l->setup.key = NULL;
	if (open_compression(l))
		goto fail;
	if (pool_init(&l->pool, setup->depth, setup->block_size))
		goto fail;
	pthread_mutex_init(&l->lock, NULL);
	*out = l;
	return 0;
fail:
	close_compression(l);
	cipher_close(l->cipher);
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
	close_compression(l);
	cipher_close(l->cipher);
	free(l->private_copy.data);
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
	fail_as(OUT_PEER_LOST, "lane %u was aborted", l->setup.index);
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

/* The peer may find a wire broken before this end's thread has attached it. So lane_attach()
 * applies the order, too. */
void lane_break(struct lane *l, uint32_t epoch, const char *why)
{
	pthread_mutex_lock(&l->lock);
	/* LANE_STORED has no reason, but the LANE_DOWN before it has one. */
	if (why[0] != '\0' || !l->break_ordered || l->break_epoch != epoch)
		snprintf(l->break_why, sizeof l->break_why, "%s", why);
	l->break_ordered = true;
	l->break_epoch = epoch;
	if (l->wire && l->epoch == epoch)
		l->wire->ops->break_(l->wire);
	pthread_mutex_unlock(&l->lock);
}

void lane_limit_depth(struct lane *l, uint32_t depth)
{
	if (depth >= LANE_DEPTH_MIN && depth <= l->setup.depth)
		atomic_store(&l->stated_depth, depth);
}

void lane_stop_clock(struct lane *l, uint64_t ms)
{
	l->stopped_ms += ms;
}

uint64_t lane_stopped_ms(const struct lane *l)
{
	return l->stopped_ms;
}

void lane_break_wire(struct lane *l, const char *why)
{
	pthread_mutex_lock(&l->lock);
	if (l->wire) {
		snprintf(l->break_why, sizeof l->break_why, "%s", why);
		l->break_ordered = true;
		l->break_epoch = l->epoch;
		l->wire->ops->break_(l->wire);
	}
	pthread_mutex_unlock(&l->lock);
}

void lane_skip_to(struct lane *l, uint32_t epoch)
{
	pthread_mutex_lock(&l->lock);
	if (epoch > l->epoch)
		l->epoch = epoch;
	pthread_mutex_unlock(&l->lock);
}

/* bound: 0 means none */
static uint32_t min_nonzero(uint32_t bound, uint32_t value)
{
	return bound && bound < value ? bound : value;
}

void lane_demand_seal(struct lane *l, bool seal)
{
	l->demands_seal = seal;
}

bool lane_demands_seal(const struct lane *l)
{
	return l->demands_seal || l->sealed;
}

bool lane_is_sealed(const struct lane *l)
{
	return l->sealed;
}

int lane_make_block(struct lane *l, struct block *b)
{
	if (b->data)
		return 0;
	b->data = aligned_alloc(LANE_PAGE, l->setup.block_size);
	if (b->data) {
		madvise(b->data, l->setup.block_size, MADV_DONTDUMP);
		return 0;
	}
	fail_as(OUT_MEMORY, "allocate a block for lane %u: %m", l->setup.index);
	return lane_die(l);
}

/* Never back to clear text: see lane_demands_seal(). */
static int begin_cipher(struct lane *l, const struct wire *w)
{
	if (!w->sealed && !lane_demands_seal(l))
		return 0;
	if (!w->sealed || !l->cipher)
		return fail_as(OUT_PROTOCOL,
			       "lane %u: one end demands encrypted blocks, and the "
			       "other cannot or need not encrypt them",
			       l->setup.index);
	if (cipher_begin(l->cipher, l->epoch))
		return -1;
	l->sealed = true;
	return 0;
}

int lane_attach(struct lane *l, struct wire *w, uint64_t stored)
{
	drop_wire(l);
	if (begin_cipher(l, w)) {
		w->ops->close(w);
		return -1;
	}
	if (l->setup.side == LANE_SOURCE && lane_apply_credit(l, stored, l->sent)) {
		w->ops->close(w);
		return -1;
	}
	l->granted = l->on_wire = lane_stored(l);
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
	if (lane_aborted(l) || (l->break_ordered && l->break_epoch == l->epoch))
		w->ops->break_(w);
	pthread_mutex_unlock(&l->lock);
	l->wire_depth = min_nonzero(w->depth, lane_stated_depth(l));
	l->window = min_nonzero(w->window, l->wire_depth);
	atomic_store_explicit(&l->counts.window, (uint64_t)l->window * l->setup.block_size,
			      memory_order_relaxed);
	lane_update_rtt(l);
	return 0;
}

void lane_update_rtt(struct lane *l)
{
	uint32_t known = atomic_load_explicit(&l->counts.rtt_us, memory_order_relaxed);
	struct wire *w = l->wire;

	if (w && w->ops->update_rtt)
		w->ops->update_rtt(w);
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
	/* What this end saw comes before what the other one made of it. */
	l->knows_cause = l->wire && l->wire->knows_cause;
	pthread_mutex_lock(&l->lock);
	if (!l->knows_cause && l->break_ordered && l->break_epoch == l->epoch &&
	    l->break_why[0] != '\0')
		snprintf(l->why, sizeof l->why, "%s", l->break_why);
	else
		snprintf(l->why, sizeof l->why, "%s", f->text);
	pthread_mutex_unlock(&l->lock);
	log_debug("lane %u epoch %u: %s", l->setup.index, l->epoch, l->why);
	drop_wire(l);
	return 0;
}

/* One idle answer is not enough to call a wire barren: it may have crossed the block that the sink
 * was waiting for. */
static void count_barren_wire(struct lane *l)
{
	l->barren = l->mend_called && lane_stored(l) == l->attached_stored &&
		    atomic_load(&l->answers_idle) - l->attached_idle > 1;
	l->barren_count = l->barren ? l->barren_count + 1 : 0;
}

/* Bounds how often wires may connect and break without progress. */
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
		       "lane %u: %d connections in a row broke before a block got through, "
		       "most recently: %s",
		       l->setup.index, FUTILE_MAX, l->why);
}

static int mend_lane(struct lane *l)
{
	char why[FAIL_TEXT_MAX];

	if (lane_alive(l))
		return -1;
	if (check_futile(l))
		return lane_die(l);
	count_barren_wire(l);
	pthread_mutex_lock(&l->lock);
	l->epoch += l->mend_called;
	pthread_mutex_unlock(&l->lock);
	l->mend_called = true;
	if (l->setup.side == LANE_SINK)
		pool_reset(&l->pool);
	memcpy(why, l->why, sizeof why);
	fail_clear();
	if (l->setup.mend(l->setup.mend_ctx, l, l->epoch, why)) {
		if (failed()->code == OUT_DONE)
			fail_as(OUT_PEER_LOST, "lane %u could not be reconnected", l->setup.index);
		return lane_aborted(l) ? lane_alive(l) : lane_die(l);
	}
	if (!l->wire) {
		fail_as(OUT_PROTOCOL, "lane %u has no connection after mending", l->setup.index);
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

/* ---- whether the sink is busy ---------------------------------------------------------- */

/* Whether a wire of this epoch is attached. Answers about other epochs count for nothing. */
static bool is_attached_at(struct lane *l, uint32_t epoch)
{
	bool attached;

	pthread_mutex_lock(&l->lock);
	attached = l->wire && l->epoch == epoch;
	pthread_mutex_unlock(&l->lock);
	return attached;
}

void lane_held(struct lane *l, uint32_t epoch, bool busy)
{
	if (is_attached_at(l, epoch))
		atomic_fetch_add(busy ? &l->answers_busy : &l->answers_idle, 1);
}

bool lane_check(struct lane *l, uint32_t epoch)
{
	bool busy = !atomic_load(&l->awaits_wire);

	lane_held(l, epoch, busy);
	return busy;
}

bool lane_knows_cause(const struct lane *l)
{
	return l->knows_cause;
}

unsigned lane_barren(const struct lane *l)
{
	return l->barren_count;
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

/* ---- properties and counters ---------------------------------------------------------- */

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

uint32_t lane_stated_depth(const struct lane *l)
{
	return atomic_load(&l->stated_depth);
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

unsigned lane_tos(const struct lane *l)
{
	return l->setup.tos;
}

uint32_t lane_host_rtt_us(const struct lane *l)
{
	return l->setup.rtt_us;
}

struct pool *lane_pool(struct lane *l)
{
	return &l->pool;
}

uint64_t lane_stored(const struct lane *l)
{
	return atomic_load(&l->stored);
}

uint64_t lane_activity(struct lane *l)
{
	uint64_t activity = lane_stored(l);

	pthread_mutex_lock(&l->lock);
	activity += (uint64_t)l->epoch << 48;
	if (l->wire)
		activity += atomic_load_explicit(&l->wire->received, memory_order_relaxed);
	pthread_mutex_unlock(&l->lock);
	return activity;
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
		.wire_bytes = atomic_load_explicit(&c->wire_bytes, memory_order_relaxed),
		.ns_compress = atomic_load_explicit(&c->ns_compress, memory_order_relaxed),
		.encrypted = atomic_load_explicit(&c->encrypted, memory_order_relaxed),
		.ns_cipher = atomic_load_explicit(&c->ns_cipher, memory_order_relaxed),
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
