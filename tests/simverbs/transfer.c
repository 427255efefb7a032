/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"
#include "operations.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdlib.h>
#include <string.h>
#include "async.h"
#include "completion.h"
#include "delay.h"
#include "device.h"
#include "host.h"
#include "misuse.h"
#include "order.h"
#include "plug.h"
#include "queue_pair.h"
#include "region.h"
#include "touch.h"

enum {
	RNR_FOR_EVER = 7, /* rdma_connect.3 */
	ACK_UNIT_NS = 4096,
	TCP_REPEAT_NS = 200000000, /* tcp.h: TCP_RTO_MIN */
};

/* What became of one try to deliver a send. */
struct outcome {
	enum {
		DELIVERED,
		NOT_READY, /* the peer has posted no receive */
		NOT_MAPPED, /* the peer's region has not been announced yet */
		NO_ANSWER, /* the peer's queue pair is not there, or broken */
		FAILED,
	} what;
	enum ibv_wc_status status; /* FAILED */
	uint64_t wait_ns; /* NOT_READY */
};

static bool has_receive(const struct send_entry *e)
{
	return e->opcode != IBV_WR_RDMA_WRITE;
}

static bool is_write(const struct send_entry *e)
{
	return e->opcode == IBV_WR_RDMA_WRITE || e->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* ---- copying ---------------------------------------------------------------------------- */

/* Where the next bytes of a send come from. */
struct cursor {
	const struct send_entry *e;
	const uint8_t *inlined;
	uint32_t sge, done;
};

static const uint8_t *take_bytes(struct cursor *c, uint32_t *n)
{
	const struct area_sge *s = &c->e->sge[c->sge];
	const uint8_t *at;

	if (c->e->inlined) {
		at = c->inlined + c->done;
		c->done += *n;
		return at;
	}
	while (c->done == s->length) {
		s = &c->e->sge[++c->sge];
		c->done = 0;
	}
	if (*n > s->length - c->done)
		*n = s->length - c->done;
	at = (const uint8_t *)(uintptr_t)s->addr + c->done;
	c->done += *n;
	return at;
}

static void copy_bytes(struct cursor *c, uint8_t *to, uint64_t bytes)
{
	while (bytes > 0) {
		uint32_t n = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
		const uint8_t *from = take_bytes(c, &n);

		memcpy(to, from, n);
		to += n;
		bytes -= n;
	}
}

static struct outcome fail_with(enum ibv_wc_status status)
{
	return (struct outcome){.what = FAILED, .status = status};
}

/* The peer's queue pair breaks too; its owner sees it when it polls. */
static struct outcome break_peer(struct remote *r, enum ibv_wc_status status)
{
	atomic_store(&r->queue->state, QUEUE_BROKEN);
	area_signal(r->completions, r->channel, 1);
	return fail_with(status);
}

static struct outcome write_remote(struct queue_pair *q, struct cursor *c)
{
	const struct send_entry *e = c->e;
	struct remote *r = q->remote;
	uint8_t *to;

	/* A write of no bytes needs neither a key nor a permission (InfiniBand C9-88). The drivers
	 * of E810 and T6 post it without a segment (irdma_uk_rdma_write(), cxgb4's
	 * build_rdma_write()); that such peers take it is assumed. */
	if (!e->bytes)
		return (struct outcome){.what = DELIVERED};
	if (!region_allows(r->table, r->queue->pd, e->rkey, e->remote_addr, e->bytes,
			   IBV_ACCESS_REMOTE_WRITE))
		return break_peer(r, IBV_WC_REM_ACCESS_ERR);
	/* Stricter than ibv_reg_mr(3), where a later completion shows the data. */
	if (region_allows(r->table, r->queue->pd, e->rkey, e->remote_addr, e->bytes,
			  IBV_ACCESS_RELAXED_ORDERING))
		misuse("queue pair %#x writes into a region with relaxed ordering", q->qp.qp_num);
	to = remote_at(r, e->rkey, e->remote_addr);
	if (!to)
		return (struct outcome){.what = NOT_MAPPED};
	copy_bytes(c, to, e->bytes);
	return (struct outcome){.what = DELIVERED};
}

/* A receive that cannot take what came: both ends break. */
static struct outcome spoil_receive(struct remote *r, struct area_receive *into,
				    enum ibv_wc_status there, enum ibv_wc_status here)
{
	into->status = there;
	atomic_fetch_add(&r->queue->filled, 1);
	return break_peer(r, here);
}

static struct outcome scatter(struct queue_pair *q, struct cursor *c, struct area_receive *into)
{
	struct remote *r = q->remote;
	uint64_t room = 0, left = c->e->bytes;
	uint8_t *to[AREA_SGES] = {NULL};

	for (uint32_t i = 0; i < into->sges; i++) {
		const struct area_sge *s = &into->sge[i];

		room += s->length;
		if (!s->length)
			continue;
		if (!region_allows(r->table, r->queue->pd, s->key, s->addr, s->length,
				   IBV_ACCESS_LOCAL_WRITE))
			return spoil_receive(r, into, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		to[i] = remote_at(r, s->key, s->addr);
		if (!to[i])
			return (struct outcome){.what = NOT_MAPPED};
	}
	if (room < left)
		return spoil_receive(r, into, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	into->found = touch_sum(into, (const uint8_t *const *)to);
	for (uint32_t i = 0; left > 0; i++) {
		uint64_t n = into->sge[i].length < left ? into->sge[i].length : left;

		if (n)
			copy_bytes(c, to[i], n);
		left -= n;
	}
	into->left = touch_sum(into, (const uint8_t *const *)to);
	return (struct outcome){.what = DELIVERED};
}

static void complete_receive(struct remote *r, const struct send_entry *e,
			     struct area_receive *into)
{
	bool imm = e->opcode == IBV_WR_SEND_WITH_IMM || e->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	into->status = IBV_WC_SUCCESS;
	into->opcode = is_write(e) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	into->bytes = e->bytes;
	into->imm = e->imm;
	into->flags = imm ? IBV_WC_WITH_IMM : 0;
	atomic_fetch_add(&r->queue->filled, 1);
	area_signal(r->completions, r->channel, e->solicited);
}

/* ---- one send --------------------------------------------------------------------------- */

/* enum ib_rnr_timeout of Linux (ib_verbs.h), from IB_RNR_TIMER_655_36 on, in 10 us. */
static uint64_t rnr_wait_ns(const struct queue_area *a)
{
	static const uint32_t times[RNR_TIMERS] = {65536, 1,     2,     3,    4,    6,    8,
						   12,    16,    24,    32,   48,   64,   96,
						   128,   192,   256,   384,  512,  768,  1024,
						   1536,  2048,  3072,  4096, 6144, 8192, 12288,
						   16384, 24576, 32768, 49152};

	return (uint64_t)times[atomic_load(&a->rnr_timer) % RNR_TIMERS] * 10000;
}

/* Under the peer's filling lock. */
static struct outcome deliver_locked(struct queue_pair *q, struct cursor *c)
{
	struct remote *r = q->remote;
	struct queue_area *a = r->queue;
	uint64_t filled = atomic_load(&a->filled);
	struct area_receive *into = &a->receives[filled % a->slots];
	struct outcome o;

	if (atomic_load(&a->state) != QUEUE_READY)
		return (struct outcome){.what = NO_ANSWER};
	if (has_receive(c->e) && filled == atomic_load(&a->posted))
		return (struct outcome){.what = NOT_READY, .wait_ns = rnr_wait_ns(a)};
	o = is_write(c->e) ? write_remote(q, c) : scatter(q, c, into);
	if (o.what == DELIVERED && has_receive(c->e))
		complete_receive(r, c->e, into);
	return o;
}

static struct outcome deliver(struct queue_pair *q, const struct send_entry *e)
{
	struct cursor c = {.e = e,
			   .inlined = q->inlined + (q->delivered % q->max_send) * q->max_inline};
	struct remote *r = q->remote;
	struct outcome o;

	if (!r || !r->queue || q->dead || order_is_silent() || plug_is_down(q->adapter, q->port))
		return (struct outcome){.what = NO_ANSWER};
	pthread_mutex_lock(&r->lock);
	area_lock(&r->queue->filling);
	o = deliver_locked(q, &c);
	area_unlock(&r->queue->filling);
	pthread_mutex_unlock(&r->lock);
	return o;
}

/* ---- retries ---------------------------------------------------------------------------- */

static uint64_t measure_ack_timeout(const struct queue_pair *q)
{
	unsigned n = q->remote ? q->remote->ack_timeout : q->adapter->p.ack_timeout;

	return (uint64_t)ACK_UNIT_NS << n;
}

/* What a lane may never cause; a test of this simulation allows it. */
static void check_may_be_unready(const struct queue_pair *q)
{
	static const char text[] = "queue pair %#x sends, and its peer has no receive posted";

	if (!getenv("SIMVERBS_RNR"))
		misuse(text, q->qp.qp_num);
	complain(text, q->qp.qp_num);
}

/* Whether the send failed for good (then *status), or after which time it is tried again. */
static bool give_up(struct queue_pair *q, const struct outcome *o, enum ibv_wc_status *status,
		    uint64_t *wait_ns)
{
	const struct personality *p = &q->adapter->p;
	unsigned most = q->remote ? q->remote->retry_count : 0;

	*wait_ns = 0;
	*status = o->status;
	if (o->what == FAILED)
		return true;
	/* A fatal error has no completion. */
	if (o->what == NO_ANSWER && q->dead)
		return false;
	/* The link goes on with it, or ends. */
	if (o->what == NOT_MAPPED)
		return false;
	if (o->what == NO_ANSWER && p->iwarp) {
		*wait_ns = TCP_REPEAT_NS;
		return false;
	}
	if (o->what == NOT_READY) {
		*wait_ns = o->wait_ns;
		*status = IBV_WC_RNR_RETRY_EXC_ERR;
		most = q->remote->rnr_retry_count;
		check_may_be_unready(q);
		if (p->iwarp) {
			/* RFC 5041 7.2: no buffer ends the stream. */
			break_peer(q->remote, IBV_WC_SUCCESS);
			return true;
		}
		if (most == RNR_FOR_EVER)
			return false;
	} else {
		*wait_ns = measure_ack_timeout(q);
		*status = IBV_WC_RETRY_EXC_ERR;
	}
	return q->tries++ >= most;
}

/* iWARP acknowledges nothing: a send is complete when it has left, and what goes wrong with it ends
 * the connection. */
static enum ibv_wc_status soften_status(const struct queue_pair *q, enum ibv_wc_status status)
{
	return q->adapter->p.iwarp ? IBV_WC_SUCCESS : status;
}

/* Else *wait_ns becomes the time until then, if it was longer or none. */
static bool is_due(uint64_t at_ns, uint64_t *wait_ns)
{
	uint64_t now = at_ns ? delay_now() : 0;

	if (at_ns <= now)
		return true;
	if (!*wait_ns || at_ns - now < *wait_ns)
		*wait_ns = at_ns - now;
	return false;
}

/* Delivers what it can; under q->lock. Returns true if the queue pair breaks; else after which time
 * to try again (0: not by time). */
static bool advance(struct queue_pair *q, uint64_t *wait_ns)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	bool broken = false;

	*wait_ns = 0;
	while (q->delivered < q->posted && !broken) {
		const struct send_entry *e = &q->sends[q->delivered % q->max_send];
		struct outcome o;

		if (!is_due(e->arrives_ns, wait_ns))
			break;
		o = e->ordered ? fail_with(e->ordered) : deliver(q, e);
		if (o.what == DELIVERED) {
			q->delivered++;
			q->tries = 0;
		} else if (give_up(q, &o, &status, wait_ns)) {
			status = e->ordered ? status : soften_status(q, status);
			broken = true;
		} else {
			break;
		}
	}
	/* What arrived before it was acknowledged before it. */
	while (q->done < q->delivered &&
	       (broken || is_due(q->sends[q->done % q->max_send].acked_ns, wait_ns)))
		queue_pair_finish_send(q, IBV_WC_SUCCESS);
	if (broken)
		queue_pair_finish_send(q, status);
	return broken;
}

void transfer_continue(struct queue_pair *q)
{
	uint64_t wait_ns;
	bool broken;

	if (device_is_gone(q->qp.context))
		return;
	pthread_mutex_lock(&q->lock);
	broken = advance(q, &wait_ns);
	pthread_mutex_unlock(&q->lock);
	if (broken)
		queue_pair_break(q);
	else if (wait_ns)
		engine_set(&q->retry, wait_ns);
}

void transfer_retry(struct engine_timer *t)
{
	transfer_continue((struct queue_pair *)((char *)t - offsetof(struct queue_pair, retry)));
}

/* ---- memory of sends -------------------------------------------------------------------- */

/* 0: not checked. */
static uint64_t sum_memory(const struct send_entry *e)
{
	uint64_t sum = 1;

	if (!touch_is_watched() || e->inlined)
		return 0;
	for (uint32_t i = 0; i < e->sges; i++)
		sum = touch_mix(sum, (const uint8_t *)(uintptr_t)e->sge[i].addr, e->sge[i].length);
	return sum ? sum : 1;
}

void transfer_check_untouched(const struct queue_pair *q, const struct send_entry *e)
{
	if (e->touch && e->status == IBV_WC_SUCCESS && sum_memory(e) != e->touch)
		misuse("queue pair %#x: the memory of a send changed before its completion",
		       q->qp.qp_num);
}

/* ---- posting ---------------------------------------------------------------------------- */

static int check_opcode(const struct queue_pair *q, const struct ibv_send_wr *wr)
{
	bool imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_SEND_WITH_IMM;

	if (wr->opcode > IBV_WR_SEND_WITH_IMM || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > q->max_send_sge)
		return EINVAL;
	/* RFC 7306 has immediates of writes only. */
	if (wr->opcode == IBV_WR_SEND_WITH_IMM && q->adapter->p.iwarp)
		return EINVAL;
	return imm && !q->adapter->p.immediate ? EINVAL : 0;
}

static int copy_inline(struct queue_pair *q, const struct ibv_send_wr *wr, struct send_entry *e)
{
	uint8_t *to = q->inlined + (q->posted % q->max_send) * q->max_inline;

	if (e->bytes > q->max_inline)
		return ENOMEM;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (s->length)
			memcpy(to, (const void *)(uintptr_t)s->addr, s->length);
		to += s->length;
	}
	e->inlined = true;
	return 0;
}

static void check_registered(const struct queue_pair *q, const struct ibv_sge *s)
{
	const struct region_area *table;
	int fd;

	table = region_table(&fd);
	if (s->length && !region_allows(table, q->area->pd, s->lkey, s->addr, s->length, 0))
		misuse("ibv_post_send: %u bytes at %#llx are not registered by key %#x", s->length,
		       (unsigned long long)s->addr, s->lkey);
}

static int enter_send(struct queue_pair *q, const struct ibv_send_wr *wr)
{
	struct send_entry *e = &q->sends[q->posted % q->max_send];
	int rc = check_opcode(q, wr);
	uint64_t bytes = 0;

	if (rc)
		return rc;
	if (q->posted - q->reaped >= q->max_send)
		misuse("ibv_post_send: all %u entries of the send queue are in use", q->max_send);
	*e = (struct send_entry){.wr_id = wr->wr_id,
				 .remote_addr = wr->wr.rdma.remote_addr,
				 .rkey = wr->wr.rdma.rkey,
				 .opcode = wr->opcode,
				 .imm = wr->imm_data,
				 .sges = (uint32_t)wr->num_sge,
				 .ordered = order_status(),
				 .signaled = q->all_signaled || wr->send_flags & IBV_SEND_SIGNALED,
				 .solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0};
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		bytes += s->length;
		e->sge[i] = (struct area_sge){s->addr, s->length, s->lkey};
		if (!(wr->send_flags & IBV_SEND_INLINE))
			check_registered(q, s);
	}
	if (bytes > q->adapter->p.max_msg_size)
		return EINVAL;
	e->bytes = (uint32_t)bytes;
	if (wr->opcode == IBV_WR_RDMA_WRITE && order_writes())
		complain("write of %u bytes", e->bytes);
	delay_message(q->adapter, q->port, bytes, measure_ack_timeout(q), &e->arrives_ns,
		      &e->acked_ns);
	if (wr->send_flags & IBV_SEND_INLINE)
		rc = copy_inline(q, wr, e);
	e->touch = sum_memory(e);
	if (!rc)
		q->posted++;
	return rc;
}

static int post_list(struct queue_pair *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc = 0;

	if (q->qp.state != IBV_QPS_RTS && q->qp.state != IBV_QPS_ERR) {
		*bad = wr;
		return EINVAL;
	}
	for (; wr && !rc; wr = wr->next) {
		rc = enter_send(q, wr);
		if (rc)
			*bad = wr;
	}
	return rc;
}

/* Once the send has been posted. */
static void report_ordered(struct queue_pair *q, const struct order_async *o)
{
	switch (o->what) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		queue_pair_kill(q);
		async_report_pair(q, o->what);
		return;
	case IBV_EVENT_CQ_ERR:
		atomic_store(&completion_of(q->qp.send_cq)->dead, true);
		queue_pair_kill_users(completion_of(q->qp.send_cq));
		async_report_completion(completion_of(q->qp.send_cq), o->what);
		return;
	case IBV_EVENT_DEVICE_FATAL:
		queue_pair_kill_adapter(q->adapter);
		device_report(q->adapter, q->port, o->what);
		return;
	case IBV_EVENT_PORT_ERR:
		plug_take_down(q->adapter, q->port, o->for_ms);
		return;
	default:
		device_report(q->adapter, q->port, o->what);
		return;
	}
}

int transfer_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct queue_pair *q = queue_pair_of(qp);
	bool broken = false, waits;
	struct order_async o = {.what = -1};
	uint64_t wait_ns = 0;
	int rc = order_failure("ibv_post_send");

	if (!rc && device_is_gone(qp->context))
		rc = EIO;
	if (rc) {
		*bad = wr;
		return rc;
	}
	if (order_silence())
		queue_pair_silence(NULL, 0);
	pthread_mutex_lock(&q->lock);
	if (q->must_listen && atomic_load(&q->area->filled) == 0)
		misuse("ibv_post_send: on iWARP the connecting end must send first");
	waits = q->done < q->posted;
	rc = post_list(q, wr, bad);
	if (q->qp.state == IBV_QPS_ERR)
		queue_pair_flush_sends(q);
	else if (!waits)
		broken = advance(q, &wait_ns);
	pthread_mutex_unlock(&q->lock);
	if (broken)
		queue_pair_break(q);
	if (!order_async(&o) && (!wait_ns || broken))
		return rc;
	engine_lock();
	if (wait_ns && !broken)
		engine_set(&q->retry, wait_ns);
	if (o.what >= 0)
		report_ordered(q, &o);
	engine_unlock();
	return rc;
}
