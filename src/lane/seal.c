/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/seal.h"

#include <stdatomic.h>
#include <string.h>
#include "base/fail.h"
#include "lane/cell_hash.h"
#include "lane/head.h"

void block_seal(struct block *b)
{
	cell_hash_of(b->pos, b->data, b->len, b->hash);
	b->sealed = true;
}

void seal_head(const struct block *b, unsigned lane, uint32_t epoch)
{
	struct head h = {
		.kind = b->kind,
		.lane = (uint16_t)lane,
		.epoch = epoch,
		.number = b->number,
		.len = b->len,
		.file = b->file,
		.pos = b->pos,
		.hash = {b->hash[0], b->hash[1]},
	};

	head_encode(&h, b->data - LANE_HEAD);
}

/* Copies memory that the peer may be writing. The fence keeps the compiler from reading it again.
 */
static void copy_once(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	atomic_signal_fence(memory_order_seq_cst);
}

/* Copies the records of *b to private, and sets *b to private. */
static void take_private(struct block **b, struct block *private)
{
	private->len = (*b)->len;
	private->slot = (*b)->slot;
	copy_once(private->data, (*b)->data, private->len);
	*b = private;
}

static bool has_hash_of(const struct block *b, const struct head *h)
{
	uint64_t hash[2];

	cell_hash_of(h->pos, b->data, b->len, hash);
	return hash[0] == h->hash[0] && hash[1] == h->hash[1];
}

enum unsealed block_unseal(struct block **arrived, struct block *private, unsigned lane,
			   uint32_t epoch, uint64_t number, uint32_t room, bool unchecked)
{
	struct block *b = *arrived;
	uint8_t head[LANE_HEAD];
	struct head h;

	copy_once(head, b->data - LANE_HEAD, sizeof head);
	if (head_decode(head, room, &h))
		return failed()->code == OUT_INTEGRITY ? UNSEAL_DAMAGED : UNSEAL_WRONG;
	if (h.lane != lane || h.epoch != epoch || h.number != number) {
		fail_as(OUT_PROTOCOL,
			"lane %u: the peer sent block %llu of lane %u epoch %u, expected block %llu of "
			"epoch %u",
			lane, (unsigned long long)h.number, h.lane, h.epoch,
			(unsigned long long)number, epoch);
		return UNSEAL_WRONG;
	}
	if (h.len != b->len) {
		fail_as(OUT_PROTOCOL, "lane %u: the peer sent block %llu with %u bytes, not %u",
			lane, (unsigned long long)number, b->len, h.len);
		return UNSEAL_WRONG;
	}
	if (private && h.kind == BLOCK_RECORDS) {
		take_private(arrived, private);
		b = *arrived;
	}
	if (!unchecked && !has_hash_of(b, &h))
		return UNSEAL_DAMAGED;
	b->kind = h.kind;
	b->file = h.file;
	b->pos = h.pos;
	b->hash[0] = h.hash[0];
	b->hash[1] = h.hash[1];
	b->number = number;
	b->sealed = true;
	return UNSEAL_WHOLE;
}
