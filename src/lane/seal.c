/* SPDX-License-Identifier: Apache-2.0 */
#include "lane/seal.h"

#include <stdatomic.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "lane/cell_hash.h"
#include "lane/head.h"

void block_seal(struct block *b)
{
	cell_hash_of(b->pos, b->data, b->len, b->hash);
	b->sealed = true;
}

static struct head head_of(const struct block *b, unsigned lane, uint32_t epoch)
{
	return (struct head){
		.kind = b->kind,
		.lane = (uint16_t)lane,
		.epoch = epoch,
		.number = b->number,
		.len = b->len,
		.file = b->file,
		.plain_len = b->plain_len,
		.pos = b->pos,
		.hash = {b->hash[0], b->hash[1]},
	};
}

void seal_head(const struct block *b, unsigned lane, uint32_t epoch)
{
	struct head h = head_of(b, lane, epoch);

	head_encode(&h, b->data - LANE_HEAD);
}

static struct cipher_block cipher_block_of(const struct block *b, const uint8_t *head,
					   const uint8_t *from, uint8_t *to)
{
	return (struct cipher_block){b->number, b->len, head, from, to};
}

/* Decrypts what an earlier wire carried. */
static int recover_clear_text(const struct block *b, struct cipher *c, uint8_t *scratch)
{
	const uint8_t *head = b->data - LANE_HEAD;
	struct cipher_block old = cipher_block_of(b, head, b->data, scratch);

	if (cipher_recover(c, b->epoch, b->key_number, &old, head + LANE_HEAD_SEALED) == 0)
		return 0;
	if (failed()->code != OUT_INTEGRITY)
		return -1;
	return fail_as(OUT_INTEGRITY, "block %llu changed in memory before it was sent again",
		       (unsigned long long)b->number);
}

int seal_encrypt(struct block *b, struct cipher *c, unsigned lane, uint32_t epoch, uint8_t *scratch)
{
	struct head h = head_of(b, lane, epoch);
	const uint8_t *clear = b->encrypted ? scratch : b->data;
	uint8_t head[LANE_HEAD];
	struct cipher_block block;

	if (b->encrypted && recover_clear_text(b, c, scratch))
		return -1;
	h.hash[0] = h.hash[1] = 0;
	head_encode(&h, head);
	block = cipher_block_of(b, head, clear, b->data);
	if (cipher_seal(c, &block, head + LANE_HEAD_SEALED, &b->key_number))
		return -1;
	b->encrypted = true;
	b->epoch = epoch;
	head_finish(head);
	memcpy(b->data - LANE_HEAD, head, sizeof head);
	return 0;
}

/* Copies memory that the peer may be writing. The fence keeps the compiler from reading it again.
 */
static void copy_once(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	atomic_signal_fence(memory_order_seq_cst);
}

/* Copies the data of *b to private, and sets *b to private. */
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

/* Replaces the block by what it was before compression. */
static enum unsealed inflate_block(struct block **b, const struct unseal_terms *t,
				   const struct head *h, uint64_t *ns)
{
	uint64_t start = clock_ns();
	int ret = inflater_unpack(t->inflater, (*b)->data, h->len, t->plain->data, h->plain_len);

	*ns = clock_ns() - start;
	t->plain->len = h->plain_len;
	t->plain->slot = (*b)->slot;
	*b = t->plain;
	return ret ? UNSEAL_DAMAGED : UNSEAL_WHOLE;
}

static enum unsealed decrypt_block(struct block *b, const struct unseal_terms *t,
				   const uint8_t head[static LANE_HEAD])
{
	struct cipher_block block = {t->number, b->len, head, b->data, b->data};

	if (cipher_unseal(t->cipher, &block, head + LANE_HEAD_SEALED))
		return failed()->code == OUT_INTEGRITY ? UNSEAL_DAMAGED : UNSEAL_WRONG;
	return UNSEAL_WHOLE;
}

static enum unsealed check_data(struct block **b, const struct unseal_terms *t,
				const uint8_t head[static LANE_HEAD], struct head *h,
				uint64_t *ns_inflate)
{
	enum unsealed result = t->cipher ? decrypt_block(*b, t, head) : UNSEAL_WHOLE;

	if (result == UNSEAL_WHOLE && h->plain_len)
		result = inflate_block(b, t, h, ns_inflate);
	if (result != UNSEAL_WHOLE)
		return result;
	if (!t->cipher)
		return t->unchecked || has_hash_of(*b, h) ? UNSEAL_WHOLE : UNSEAL_DAMAGED;
	/* For the caller's digest: the tag has shown that the block is whole. */
	h->hash[0] = h->hash[1] = 0;
	if (!t->unchecked && h->kind == BLOCK_EXTENT)
		cell_hash_of(h->pos, (*b)->data, (*b)->len, h->hash);
	return UNSEAL_WHOLE;
}

/* Whether the head of b is that of the block that is due. */
static int check_head(const uint8_t head[static LANE_HEAD], const struct block *b,
		      const struct unseal_terms *t, struct head *h)
{
	if (head_decode(head, t->room, h))
		return -1;
	if (h->lane != t->lane || h->epoch != t->epoch || h->number != t->number)
		return fail_as(OUT_PROTOCOL,
			       "lane %u: the peer sent block %llu of lane %u epoch %u, expected "
			       "block %llu of epoch %u",
			       t->lane, (unsigned long long)h->number, h->lane, h->epoch,
			       (unsigned long long)t->number, t->epoch);
	if (h->len != b->len)
		return fail_as(OUT_PROTOCOL,
			       "lane %u: the peer sent block %llu with %u bytes, not %u", t->lane,
			       (unsigned long long)t->number, b->len, h->len);
	if (h->plain_len && !t->inflater)
		return fail_as(OUT_PROTOCOL,
			       "lane %u: the peer sent block %llu compressed, which was not agreed",
			       t->lane, (unsigned long long)t->number);
	return 0;
}

enum unsealed block_unseal(struct block **arrived, struct block *private,
			   const struct unseal_terms *t, uint64_t *ns_inflate)
{
	struct block *b = *arrived;
	uint8_t head[LANE_HEAD];
	enum unsealed result;
	struct head h;

	copy_once(head, b->data - LANE_HEAD, sizeof head);
	/* Of an encrypted block only the tag would show that the head is the peer's. */
	if (check_head(head, b, t, &h))
		return t->cipher || failed()->code == OUT_INTEGRITY ? UNSEAL_DAMAGED : UNSEAL_WRONG;
	if (private && (t->cipher || h.kind == BLOCK_RECORDS || h.plain_len)) {
		take_private(arrived, private);
		b = *arrived;
	}
	result = check_data(arrived, t, head, &h, ns_inflate);
	if (result != UNSEAL_WHOLE)
		return result;
	b = *arrived;
	b->wire_len = h.len;
	b->kind = h.kind;
	b->file = h.file;
	b->pos = h.pos;
	b->hash[0] = h.hash[0];
	b->hash[1] = h.hash[1];
	b->number = t->number;
	b->sealed = true;
	return UNSEAL_WHOLE;
}
