/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/lane.h"

#include <stdlib.h>
#include "base/clock.h"
#include "lane/lane_impl.h"
#include "lane/seal.h"

static int grant_credit(struct lane *l)
{
	l->granted = lane_stored(l);
	return l->wire->ops->grant(l->wire, l->granted);
}

/* Credits are batched, because each message costs both ends some work. But before this end waits
 * for a block, it grants them: the source may be waiting for these credits. */
static int await_next_block(struct lane *l, struct block **b)
{
	struct wire *w = l->wire;

	*b = NULL;
	if (l->granted < lane_stored(l)) {
		if (w->ops->recv(w, false, b))
			return -1;
		if (!*b && grant_credit(l))
			return -1;
	}
	return *b ? 0 : w->ops->recv(w, true, b);
}

/* The next block arrived damaged. The lane is mended, and the source sends the block again. If the
 * same block arrives damaged again, the lane fails. */
static int handle_damaged_block(struct lane *l)
{
	uint64_t number = lane_stored(l);

	if (l->damaged == number + 1) {
		fail_as(OUT_INTEGRITY, "lane %u: block %llu arrived damaged twice", l->setup.index,
			(unsigned long long)number);
		return lane_die(l);
	}
	l->damaged = number + 1;
	l->damaged_now = true;
	fail_as(OUT_INTEGRITY, "lane %u: block %llu arrived damaged", l->setup.index,
		(unsigned long long)number);
	return lane_broke(l);
}

/* Provides the block that block_unseal() copies parsed bytes to. *private is NULL if the peer
 * cannot change a block after it has arrived. */
static int prepare_private_copy(struct lane *l, struct block **private)
{
	*private = NULL;
	if (!l->wire->exposed)
		return 0;
	if (lane_make_block(l, &l->private_copy))
		return -1;
	*private = &l->private_copy;
	return 0;
}

static enum unsealed unseal_block(struct lane *l, struct block **b, struct block *private)
{
	const struct unseal_terms terms = {
		.cipher = l->sealed ? l->cipher : NULL,
		.lane = l->setup.index,
		.epoch = l->epoch,
		.number = lane_stored(l),
		.room = l->setup.block_size,
		.unchecked = l->setup.unchecked,
		.inflater = l->inflater,
		.plain = &l->plain,
	};
	uint64_t start = l->sealed ? clock_ns() : 0, ns_inflate = 0;
	enum unsealed result = block_unseal(b, private, &terms, &ns_inflate);

	if (l->sealed)
		count_up(&l->counts.ns_cipher, clock_ns() - start - ns_inflate);
	count_up(&l->counts.ns_compress, ns_inflate);
	return result;
}

/* On an encrypted wire anybody may have sent what makes no sense: no tag was checked yet. */
static bool is_damage(const struct lane *l)
{
	return failed()->code == OUT_INTEGRITY || (l->sealed && failed()->code == OUT_PROTOCOL);
}

/* Receives and checks one block. *b is NULL if the wire broke and may be mended. */
static int try_block(struct lane *l, struct block **b)
{
	struct block *private;

	if (prepare_private_copy(l, &private) || (l->inflater && lane_make_block(l, &l->plain)))
		return -1;
	if (await_next_block(l, b)) {
		*b = NULL;
		return is_damage(l) && !lane_aborted(l) ? handle_damaged_block(l) : lane_broke(l);
	}
	switch (unseal_block(l, b, private)) {
	case UNSEAL_WHOLE:
		count_up(&l->counts.encrypted, l->sealed);
		return 0;
	case UNSEAL_DAMAGED:
		*b = NULL;
		return handle_damaged_block(l);
	case UNSEAL_WRONG:
		break;
	}
	return lane_die(l);
}

/* For lane_check(), which may find out a moment late. */
static void note_awaiting(struct lane *l, bool awaits)
{
	atomic_store_explicit(&l->awaits_wire, awaits, memory_order_relaxed);
}

int lane_recv(struct lane *l, struct block **out)
{
	uint64_t start = clock_ns();
	bool first = !l->mend_called;
	struct block *b = NULL;

	if (lane_alive(l))
		return -1;
	note_awaiting(l, true);
	while (!b) {
		if (lane_join(l))
			return -1;
		if (first)
			start = clock_ns();
		first = false;
		if (try_block(l, &b))
			return -1;
	}
	note_awaiting(l, false);
	b->lent_ns = clock_ns();
	count_up(&l->counts.ns_block, b->lent_ns - start);
	l->lent = b;
	*out = b;
	return 0;
}

/* How many blocks to put before a credit is sent. */
static uint32_t credit_batch(const struct lane *l)
{
	return l->window / 4;
}

int lane_put(struct lane *l, struct block *b)
{
	struct wire *w = l->wire;
	uint64_t stored, now = clock_ns();
	int rc = 0;

	if (b != l->lent) {
		fail_as(OUT_PROTOCOL, "lane %u: block %u was not lent", l->setup.index, b->slot);
		return lane_die(l);
	}
	l->lent = NULL;
	stored = lane_stored(l) + 1;
	atomic_store_explicit(&l->stored, stored, memory_order_release);
	atomic_store_explicit(&l->sign_ms, now / 1000000, memory_order_relaxed);
	count_up(&l->counts.ns_store, now - b->lent_ns);
	count_up(&l->counts.blocks, 1);
	count_up(&l->counts.bytes, b->len);
	count_up(&l->counts.wire_bytes, b->wire_len);
	if (lane_alive(l))
		return -1;
	b = &l->pool.blocks[b->slot]; /* b may be private_copy or plain */
	/* Post before granting: with the credit the source may send into the block. */
	note_awaiting(l, true);
	if (w &&
	    (w->ops->post(w, b) || (stored - l->granted >= credit_batch(l) && grant_credit(l))))
		rc = lane_broke(l);
	note_awaiting(l, false);
	return rc;
}
