/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/lane.h"

#include "base/clock.h"
#include "lane/fault.h"
#include "lane/lane_impl.h"
#include "lane/seal.h"

int lane_apply_credit(struct lane *l, uint64_t stored, uint64_t sent)
{
	uint64_t before = lane_stored(l);

	if (stored < before || stored > sent)
		return fail_as(
			OUT_PROTOCOL,
			"lane %u: the sink reports %llu blocks as stored, but %llu were sent and "
			"%llu stored before",
			l->setup.index, (unsigned long long)stored, (unsigned long long)sent,
			(unsigned long long)before);
	while (l->unstored && l->unstored->number < stored) {
		struct block *b = l->unstored;

		l->unstored = b->next;
		if (!l->unstored)
			l->unstored_end = &l->unstored;
		pool_give(&l->pool, b);
	}
	if (stored > before)
		atomic_store_explicit(&l->sign_ms, clock_ms(), memory_order_relaxed);
	atomic_store_explicit(&l->stored, stored, memory_order_release);
	return 0;
}

/* Applies the credits that have arrived. With `wait', waits for at least one more. */
static int take_credits(struct lane *l, bool wait)
{
	uint64_t stored, least = wait ? lane_stored(l) + 1 : 0;

	if (l->wire->ops->credit(l->wire, least, &stored))
		return -1;
	/* Mostly no credit has arrived since. */
	if (stored == 0 || stored == lane_stored(l))
		return 0;
	return lane_apply_credit(l, stored, l->on_wire);
}

/* Whether a credit must arrive before the next block is lent. */
static bool must_await_credit(const struct lane *l)
{
	return !l->pool.free || l->sent - lane_stored(l) >= l->window;
}

/*
 * Waits until the depth of the wire has room for b. The pool may hold more blocks than that: the
 * caller may have filled several, and those of the last wire may be more. A credit that arrives
 * meanwhile frees only blocks before b, because b is not on the wire yet.
 */
static int await_wire_room(struct lane *l, const struct block *b)
{
	while (b->number - lane_stored(l) >= l->wire_depth) {
		if (take_credits(l, true))
			return -1;
	}
	return 0;
}

/* Writes what the wire moves: the head and, on an encrypted wire, the encrypted data. */
static int dress_block(struct lane *l, struct block *b)
{
	uint64_t start;

	if (!l->sealed) {
		seal_head(b, l->setup.index, l->epoch);
		return 0;
	}
	if (b->encrypted && lane_make_block(l, &l->private_copy))
		return -1;
	start = clock_ns();
	fault_restore(l->setup.index, b);
	count_up(&l->counts.encrypted, !b->encrypted);
	if (seal_encrypt(b, l->cipher, l->setup.index, l->epoch, l->private_copy.data))
		return lane_die(l);
	count_up(&l->counts.ns_cipher, clock_ns() - start);
	return 0;
}

static int send_sealed_block(struct lane *l, struct block *b)
{
	if (await_wire_room(l, b))
		return -1;
	l->on_wire = b->number + 1;
	if (dress_block(l, b))
		return -1;
	fault_before_send(l->setup.index, b);
	if (l->wire->ops->send(l->wire, b))
		return -1;
	if (fault_after_send(l->setup.index, b))
		lane_break(l, l->epoch, "broken by an injected fault");
	return 0;
}

int lane_resend(struct lane *l)
{
	for (struct block *b = l->unstored; b; b = b->next) {
		if (send_sealed_block(l, b))
			return -1;
		count_up(&l->counts.resent, 1);
	}
	return 0;
}

static struct block *lend_block(struct lane *l, uint64_t now_ns)
{
	struct block *b = pool_take(&l->pool);

	b->len = 0;
	b->kind = BLOCK_RECORDS;
	b->file = 0;
	b->pos = 0;
	b->sealed = false;
	b->encrypted = false;
	b->packed = false;
	b->plain_len = 0;
	b->lent = true;
	b->lent_ns = now_ns;
	return b;
}

void lane_begin(struct block *b)
{
	b->lent_ns = clock_ns();
}

struct block *lane_more(struct lane *l)
{
	return l->pool.free ? lend_block(l, clock_ns()) : NULL;
}

int lane_get(struct lane *l, struct block **out)
{
	uint64_t start = clock_ns(), now;
	bool first = !l->mend_called, mended, awaits;

	if (lane_alive(l))
		return -1;
	do {
		mended = !l->wire;
		if (lane_join(l))
			return -1;
		if (first)
			start = clock_ns();
		first = false;
		awaits = must_await_credit(l);
		if (take_credits(l, awaits) == 0) {
			/* The clock is read as rarely as possible: it is much of a small block's
			 * cost. */
			now = mended || awaits ? clock_ns() : start;
			count_up(&l->counts.ns_free, now - start);
			l->waited_ns += now - start;
			*out = lend_block(l, now);
			return 0;
		}
	} while (lane_broke(l) == 0);
	return -1;
}

/* Reports a caller's mistake here, where it can be found, and not at the peer. */
static int check_block(struct lane *l, const struct block *b)
{
	if (!b->lent)
		return fail_as(OUT_PROTOCOL, "lane %u: block %u was not lent", l->setup.index,
			       b->slot);
	if (b->len > l->setup.block_size || (b->kind != BLOCK_RECORDS && b->kind != BLOCK_EXTENT))
		return fail_as(OUT_PROTOCOL, "lane %u: invalid block of kind %u with %u bytes",
			       l->setup.index, b->kind, b->len);
	return 0;
}

static void hash_block(struct lane *l, struct block *b)
{
	if (l->setup.unchecked)
		b->hash[0] = b->hash[1] = 0;
	else if (!b->sealed && !l->sealed) /* a tag takes the place of the hash */
		block_seal(b);
}

/* The hash is that of the clear data, so it comes first. */
static void pack_block(struct lane *l, struct block *b)
{
	uint64_t start = clock_ns(), end, worked;
	uint32_t len = b->len, packed;

	b->packed = true;
	packed = choice_tries(&l->choice, start, len, l->waited_ns, l->window);
	l->waited_ns = 0;
	l->packed_ns = start;
	if (!packed)
		return;
	worked = clock_worked_ns();
	packed = compressor_pack(l->compressor, b->data, len);
	worked = clock_worked_ns() - worked;
	if (packed) {
		b->plain_len = len;
		b->len = packed;
	}
	l->packed_ns = end = clock_ns();
	choice_learns(&l->choice, end, len, packed, end - start, worked);
	count_up(&l->counts.ns_compress, end - start);
}

bool lane_packs(const struct lane *l)
{
	return l->compressor != NULL;
}

/* What this takes counts as sending. */
uint32_t lane_pack(struct lane *l, struct block *b)
{
	uint64_t start, spent;

	if (!l->compressor || b->packed || b->len > l->setup.block_size)
		return b->len;
	start = clock_ns();
	hash_block(l, b);
	pack_block(l, b);
	spent = clock_ns() - start;
	b->lent_ns += spent;
	count_up(&l->counts.ns_send, spent);
	return b->len;
}

int lane_send(struct lane *l, struct block *b)
{
	uint64_t start, packed, now;
	int ret;

	if (lane_alive(l))
		return -1;
	if (check_block(l, b))
		return lane_die(l);
	start = clock_ns();
	count_up(&l->counts.ns_fill, start - b->lent_ns);
	count_up(&l->counts.blocks, 1);
	count_up(&l->counts.bytes, b->packed && b->plain_len ? b->plain_len : b->len);
	/* The time since then went to --bwlimit, and so does that of a longer block. */
	if (b->packed)
		l->waited_ns += start - l->packed_ns;
	if (!b->packed)
		hash_block(l, b);
	if (!b->packed && l->compressor)
		pack_block(l, b);
	count_up(&l->counts.wire_bytes, b->len);
	packed = l->compressor ? clock_ns() : start; /* what the choice to compress needs */
	b->lent = false;
	b->number = l->sent++;
	b->next = NULL;
	*l->unstored_end = b;
	l->unstored_end = &b->next;
	ret = send_sealed_block(l, b);
	if (ret)
		ret = lane_broke(l) ? -1 : lane_join(l);
	now = clock_ns();
	count_up(&l->counts.ns_send, now - start);
	l->waited_ns += now - packed;
	return ret;
}

int lane_flush(struct lane *l)
{
	uint64_t start = clock_ns();

	if (lane_alive(l))
		return -1;
	while (l->unstored) {
		if (lane_join(l))
			return -1;
		/* Mending may have freed the last blocks. */
		if (l->unstored && take_credits(l, true) && lane_broke(l))
			return -1;
	}
	count_up(&l->counts.ns_free, clock_ns() - start);
	lane_update_rtt(l);
	return 0;
}

int lane_tend(struct lane *l)
{
	if (lane_alive(l))
		return -1;
	while (l->unstored) {
		if (lane_join(l))
			return -1;
		if (take_credits(l, false) == 0)
			break;
		if (lane_broke(l))
			return -1;
	}
	return l->unstored != NULL;
}
