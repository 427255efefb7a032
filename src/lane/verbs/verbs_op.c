/* SPDX-License-Identifier: Apache-2.0 */

/* The data operation that moves a block from the source's memory to the sink's (enum rdma_op). */

#include <arpa/inet.h>
#include "lane/verbs/verbs_impl.h"

const char *verbs_op_text(enum rdma_op op)
{
	static const char *const text[] = {"auto", "send", "write-imm", "write-send"};

	return text[op];
}

const char *verbs_work_text(uint64_t id)
{
	switch ((enum verbs_work)(id >> 32)) {
	case WORK_WRITE_BLOCK:
		return "write of a block";
	case WORK_SEND_BLOCK:
		return "send of a block";
	case WORK_SEND_CREDIT:
		return "send of a credit";
	case WORK_SEND_HELLO:
		return "send of the hello";
	case WORK_WRITE_EMPTY:
		return "write of 0 bytes";
	case WORK_RECV_BLOCK:
		return "receive of a block";
	case WORK_RECV_CREDIT:
		return "receive of a credit";
	case WORK_RECV_HELLO:
		return "receive of the hello";
	}
	return "unknown work";
}

int verbs_op_check(struct verbs *v)
{
	if (v->op != RDMA_OP_WRITE_IMM || v->adapter.kind != ADAPTER_IWARP)
		return 0;
	/* RFC 7306 adds it, but verbs do not show which adapters implement that. */
	return verbs_fail(
		v, OUT_TRANSPORT,
		"%s is iWARP, which has no RDMA WRITE WITH IMMEDIATE: use --rdma-op=write-send or "
		"--rdma-op=send",
		ibv_get_device_name(v->id->verbs->device));
}

/* ---- source ------------------------------------------------------------------------- */

uint32_t verbs_sends_a_block(const struct verbs *v)
{
	return v->side == LANE_SOURCE && v->op == RDMA_OP_WRITE_SEND ? 2 : 1;
}

/* The address of a slot's head in the sink's memory. */
static uint64_t remote_slot_addr(const struct verbs *v, uint32_t slot)
{
	uint64_t stride = (uint64_t)v->pool->size + LANE_PAGE;

	return v->peer_ring.at + slot * stride + LANE_PAGE - LANE_HEAD;
}

static struct ibv_send_wr make_write(const struct verbs *v, uint32_t slot, struct ibv_sge *sge)
{
	return (struct ibv_send_wr){
		.wr_id = work_id(WORK_WRITE_BLOCK, slot),
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = remote_slot_addr(v, slot), .rkey = v->peer_ring.key},
	};
}

/* A receiver gets the SEND only after all earlier WRITEs are in place. iWARP guarantees that, too,
 * although it guarantees nothing else about the order of WRITEs. */
static int write_and_send(struct verbs *v, uint32_t slot, uint32_t place, struct ibv_sge *data)
{
	struct notice n = {.epoch = v->epoch, .slot = slot, .len = data->length};
	struct ibv_sge sge = {.addr = (uintptr_t)verbs_notice_at(v, place),
			      .length = NOTICE_SIZE,
			      .lkey = v->ring_mr->lkey};
	struct ibv_send_wr notice = {.wr_id = work_id(WORK_SEND_BLOCK, slot),
				     .sg_list = &sge,
				     .num_sge = 1,
				     .opcode = IBV_WR_SEND,
				     .send_flags = v->sends_inline ? IBV_SEND_INLINE : 0};
	struct ibv_send_wr data_wr = make_write(v, slot, data);

	notice_encode(&n, verbs_notice_at(v, place));
	data_wr.next = &notice;
	return verbs_post_sends(v, &data_wr);
}

int verbs_send_block(struct verbs *v, const struct block *b)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(b->data - LANE_HEAD),
			      .length = LANE_HEAD + b->len,
			      .lkey = v->pool_mr->lkey};
	/* The sink's ring has as many slots as its hello states, this end's notices as its own. */
	uint32_t slot = (uint32_t)(b->number % v->wire.depth);
	struct ibv_send_wr wr;

	if (v->op == RDMA_OP_WRITE_SEND)
		return write_and_send(v, slot, (uint32_t)(b->number % v->depth), &sge);
	wr = make_write(v, slot, &sge);
	wr.wr_id = work_id(WORK_SEND_BLOCK, slot);
	wr.opcode = IBV_WR_SEND;
	if (v->op == RDMA_OP_WRITE_IMM) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl(slot);
	}
	return verbs_post_sends(v, &wr);
}

/* ---- sink --------------------------------------------------------------------------- */

uint64_t verbs_ring_at(const struct verbs *v)
{
	return (uintptr_t)v->pool->blocks[0].data - LANE_PAGE;
}

int verbs_post_block(struct verbs *v, uint32_t slot)
{
	struct ibv_sge into = {.addr = (uintptr_t)(v->pool->blocks[slot].data - LANE_HEAD),
			       .length = LANE_HEAD + v->pool->size,
			       .lkey = v->pool_mr->lkey};

	if (v->op == RDMA_OP_WRITE_SEND)
		into = (struct ibv_sge){.addr = (uintptr_t)verbs_notice_at(v, slot),
					.length = NOTICE_SIZE,
					.lkey = v->ring_mr->lkey};
	if (verbs_post_recv(v, work_id(WORK_RECV_BLOCK, slot),
			    v->op == RDMA_OP_WRITE_IMM ? NULL : &into))
		return -1;
	v->posted[slot] = true;
	return 0;
}

enum ibv_wc_opcode verbs_block_opcode(const struct verbs *v)
{
	return v->op == RDMA_OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
}

/* Reads the slot and length of a written block, as the peer sent them. */
static int read_arrival(struct verbs *v, const struct ibv_wc *wc, struct arrival *a)
{
	struct notice n;

	if (v->op == RDMA_OP_WRITE_IMM) {
		*a = (struct arrival){.slot = ntohl(wc->imm_data), .len = wc->byte_len};
		return 0;
	}
	if (wc->byte_len != NOTICE_SIZE)
		return verbs_fail(v, OUT_PROTOCOL, "%s: received a notice of %u bytes",
				  v->wire.name, wc->byte_len);
	if (notice_decode(verbs_notice_at(v, (uint32_t)wc->wr_id), &n))
		return verbs_fail(v, failed()->code, "%s: %s", v->wire.name, failed()->text);
	if (n.epoch != v->epoch)
		return verbs_fail(v, OUT_PROTOCOL, "%s: received a notice of epoch %u in epoch %u",
				  v->wire.name, n.epoch, v->epoch);
	*a = (struct arrival){.slot = n.slot, .len = n.len};
	return 0;
}

int verbs_block_arrived(struct verbs *v, const struct ibv_wc *wc)
{
	/* The adapter uses receives in the order in which they were posted, which is the order of
	 * slots. So with every operation this is the next slot, and it was free. */
	uint32_t expected = (uint32_t)wc->wr_id;
	struct arrival a = {.slot = expected, .len = wc->byte_len};

	if (verbs_writes(v) && read_arrival(v, wc, &a))
		return -1;
	if (a.slot != expected)
		return verbs_fail(v, OUT_PROTOCOL,
				  "%s: slot %u of %u was written, expected slot %u", v->wire.name,
				  a.slot, v->depth, expected);
	if (a.len < LANE_HEAD || a.len > LANE_HEAD + v->pool->size)
		return verbs_fail(v, OUT_PROTOCOL, "%s: received a block of %u bytes", v->wire.name,
				  a.len);
	v->arrivals[(v->arrivals_first + v->arrivals_count) % v->depth] = a;
	v->posted[expected] = false;
	v->arrivals_count++;
	atomic_fetch_add_explicit(&v->wire.received, 1, memory_order_relaxed);
	return 0;
}
