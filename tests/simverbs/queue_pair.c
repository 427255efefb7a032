/* SPDX-License-Identifier: Apache-2.0 */
#include "queue_pair.h"
#include "operations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "async.h"
#include "device.h"
#include "host.h"
#include "misuse.h"
#include "order.h"
#include "plug.h"
#include "region.h"
#include "touch.h"
#include "transfer.h"

enum { WQE_SEND_BYTES = 64, WQE_RECV_BYTES = 16, FIRST_NUMBER = 0x100 };

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue_pair *all;
static _Atomic uint32_t next_number = FIRST_NUMBER;

/* A child cannot use its parent's. */
static void forget_parent(void)
{
	pthread_mutex_init(&all_lock, NULL);
	all = NULL;
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

/* ---- making ----------------------------------------------------------------------------- */

static bool is_possible(const struct ibv_qp_init_attr *a, const struct personality *p)
{
	uint32_t most_sge = p->max_sge < AREA_SGES ? p->max_sge : AREA_SGES;

	return a->qp_type == IBV_QPT_RC && !a->srq && a->send_cq && a->recv_cq &&
	       a->cap.max_send_wr <= p->max_qp_wr && a->cap.max_recv_wr <= p->max_qp_wr &&
	       a->cap.max_send_sge <= most_sge && a->cap.max_recv_sge <= most_sge &&
	       a->cap.max_inline_data <= p->max_inline;
}

/* What the adapter makes of what was asked for. */
static void grant_cap(struct ibv_qp_cap *cap, const struct personality *p)
{
	uint32_t least = p->inline_least < p->max_inline ? p->inline_least : p->max_inline;

	if (p->round_wr) {
		cap->max_send_wr =
			device_round(cap->max_send_wr + p->send_reserved) - p->send_reserved;
		cap->max_recv_wr =
			device_round(cap->max_recv_wr + p->recv_reserved) - p->recv_reserved;
	}
	if (cap->max_inline_data < least)
		cap->max_inline_data = least;
}

static int lock_queues(struct queue_pair *q)
{
	uint64_t bytes = (uint64_t)q->max_send * WQE_SEND_BYTES +
			 (uint64_t)q->area->slots * WQE_RECV_BYTES * q->max_recv_sge;

	bytes = (bytes + 4095) & ~(uint64_t)4095;
	if (memory_lock(&q->adapter->p, bytes))
		return -1;
	q->locked = bytes;
	return 0;
}

static int make_rings(struct queue_pair *q, const struct ibv_qp_cap *cap)
{
	q->max_send = cap->max_send_wr ? cap->max_send_wr : 1;
	q->max_send_sge = cap->max_send_sge;
	q->max_recv_sge = cap->max_recv_sge;
	q->max_inline = cap->max_inline_data;
	q->sends = calloc(q->max_send, sizeof *q->sends);
	q->inlined = calloc(q->max_send, q->max_inline + 1);
	q->area_bytes = sizeof *q->area + (size_t)(cap->max_recv_wr ? cap->max_recv_wr : 1) *
						  sizeof(struct area_receive);
	q->area = area_new("simverbs-queue", q->area_bytes, &q->area_fd);
	if (!q->area || !q->sends || !q->inlined)
		return -1;
	area_lock_init(&q->area->filling);
	q->area->slots = cap->max_recv_wr ? cap->max_recv_wr : 1;
	q->area->rnr_timer =
		0; /* as the connection manager leaves it: cm.c, cm_init_qp_rtr_attr() */
	return 0;
}

/* order.h: the least that is free, else the next. */
static uint32_t pick_number(void)
{
	uint32_t n = FIRST_NUMBER;

	if (!order_reuse())
		return atomic_fetch_add(&next_number, 1);
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q;) {
		bool taken = q->qp.qp_num == n;

		n += taken;
		q = taken ? all : q->next;
	}
	pthread_mutex_unlock(&all_lock);
	return n;
}

struct queue_pair *queue_pair_new(struct ibv_pd *pd, unsigned port, struct ibv_qp_init_attr *attr)
{
	const struct personality *p = &adapter_of(pd->context)->p;
	struct queue_pair *q;

	if (!is_possible(attr, p)) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	q->area_fd = -1;
	q->adapter = adapter_of(pd->context);
	q->port = port;
	pthread_mutex_init(&q->lock, NULL);
	pthread_mutex_init(&q->recv_lock, NULL);
	q->retry.fire = transfer_retry;
	q->all_signaled = attr->sq_sig_all;
	grant_cap(&attr->cap, p);
	q->qp.context = pd->context;
	q->qp.pd = pd;
	q->qp.send_cq = attr->send_cq;
	q->qp.recv_cq = attr->recv_cq;
	q->qp.qp_type = attr->qp_type;
	q->qp.qp_context = attr->qp_context;
	q->qp.state = IBV_QPS_INIT;
	q->qp.qp_num = pick_number();
	pd_of(pd)->users++;
	if (make_rings(q, &attr->cap) || (p->queues_locked && lock_queues(q)) ||
	    completion_join(completion_of(attr->send_cq), q) ||
	    completion_join(completion_of(attr->recv_cq), q)) {
		int err = errno;

		queue_pair_free(q);
		errno = err;
		return NULL;
	}
	q->area->number = q->qp.qp_num;
	q->area->pd = pd->handle;
	pthread_mutex_lock(&all_lock);
	q->next = all;
	all = q;
	pthread_mutex_unlock(&all_lock);
	return q;
}

/* What was posted and not polled. */
static void return_receives(struct queue_pair *q)
{
	struct queue_area *a = q->area;

	for (uint64_t i = q->polled; a && i < atomic_load(&a->posted); i++)
		touch_return(&a->receives[i % a->slots]);
}

void queue_pair_free(struct queue_pair *q)
{
	struct queue_pair **at = &all;

	return_receives(q);

	async_drop_pair(q);
	pthread_mutex_lock(&all_lock);
	while (*at && *at != q)
		at = &(*at)->next;
	if (*at)
		*at = q->next;
	pthread_mutex_unlock(&all_lock);
	completion_leave(completion_of(q->qp.send_cq), q);
	completion_leave(completion_of(q->qp.recv_cq), q);
	area_unmap(q->area, q->area_bytes);
	if (q->area_fd >= 0)
		close(q->area_fd);
	memory_unlock(q->locked);
	pd_of(q->qp.pd)->users--;
	pthread_mutex_destroy(&q->lock);
	pthread_mutex_destroy(&q->recv_lock);
	free(q->sends);
	free(q->inlined);
	free(q);
}

static bool is_at(const struct queue_pair *q, const struct host_adapter *a, unsigned port)
{
	return (!a || q->adapter == a) && (!port || q->port == port);
}

void queue_pair_silence(const struct host_adapter *a, unsigned port)
{
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q; q = q->next) {
		uint32_t ready = QUEUE_READY;

		if (q->area && is_at(q, a, port))
			atomic_compare_exchange_strong(&q->area->state, &ready, QUEUE_IDLE);
	}
	pthread_mutex_unlock(&all_lock);
}

/* Those whose connection is there. */
void queue_pair_listen(const struct host_adapter *a, unsigned port)
{
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q; q = q->next) {
		uint32_t idle = QUEUE_IDLE;
		bool connected;

		if (!is_at(q, a, port))
			continue;
		pthread_mutex_lock(&q->lock);
		connected = q->remote && q->qp.state == IBV_QPS_RTS && !q->dead;
		pthread_mutex_unlock(&q->lock);
		if (!connected)
			continue;
		atomic_compare_exchange_strong(&q->area->state, &idle, QUEUE_READY);
		transfer_continue(q);
	}
	pthread_mutex_unlock(&all_lock);
}

void queue_pair_kill(struct queue_pair *q)
{
	uint32_t ready = QUEUE_READY;

	/* An iWARP adapter resets the connection. */
	if (q->adapter->p.iwarp) {
		queue_pair_break(q);
		return;
	}
	pthread_mutex_lock(&q->lock);
	q->dead = true;
	pthread_mutex_unlock(&q->lock);
	atomic_compare_exchange_strong(&q->area->state, &ready, QUEUE_IDLE);
}

void queue_pair_kill_users(const struct completion *c)
{
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q; q = q->next)
		if (q->qp.send_cq == &c->cq || q->qp.recv_cq == &c->cq)
			queue_pair_kill(q);
	pthread_mutex_unlock(&all_lock);
}

void queue_pair_kill_adapter(const struct host_adapter *a)
{
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q; q = q->next)
		if (q->adapter == a)
			queue_pair_kill(q);
	pthread_mutex_unlock(&all_lock);
}

static bool uses_key(const struct area_sge *s, uint32_t count, uint32_t key)
{
	for (uint32_t i = 0; i < count; i++)
		if (s[i].length && s[i].key == key)
			return true;
	return false;
}

/* Those whose completion was polled are the program's already. */
static void give_back(struct queue_pair *q, uint32_t key)
{
	struct queue_area *a = q->area;

	pthread_mutex_lock(&q->recv_lock);
	area_lock(&a->filling);
	for (uint64_t i = q->polled; i < atomic_load(&a->posted); i++) {
		struct area_receive *r = &a->receives[i % a->slots];

		if (!uses_key(r->sge, r->sges, key))
			continue;
		touch_return(r);
		r->watched = false;
	}
	area_unlock(&a->filling);
	pthread_mutex_unlock(&q->recv_lock);
}

void queue_pair_give_back(uint32_t pd, uint32_t key)
{
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q; q = q->next)
		if (q->area && q->area->pd == pd)
			give_back(q, key);
	pthread_mutex_unlock(&all_lock);
}

void queue_pair_settle(uint32_t pd)
{
	pthread_mutex_lock(&all_lock);
	for (struct queue_pair *q = all; q; q = q->next)
		if (q->area && q->area->pd == pd) {
			area_lock(&q->area->filling);
			area_unlock(&q->area->filling);
		}
	pthread_mutex_unlock(&all_lock);
}

/* ---- receives --------------------------------------------------------------------------- */

static void flush_receives(struct queue_pair *q)
{
	struct queue_area *a = q->area;
	uint64_t posted = atomic_load(&a->posted), filled = atomic_load(&a->filled);

	for (; filled < posted; filled++)
		a->receives[filled % a->slots].status = IBV_WC_WR_FLUSH_ERR;
	atomic_store(&a->filled, filled);
}

static void fill_receive(struct queue_pair *q, struct area_receive *r, const struct ibv_recv_wr *wr)
{
	const struct region_area *table;
	int fd;

	table = region_table(&fd);
	r->wr_id = wr->wr_id;
	r->sges = (uint32_t)wr->num_sge;
	for (uint32_t i = 0; i < r->sges; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		r->sge[i] = (struct area_sge){s->addr, s->length, s->lkey};
		if (s->length && !region_allows(table, q->area->pd, s->lkey, s->addr, s->length,
						IBV_ACCESS_LOCAL_WRITE))
			misuse("ibv_post_recv: %u bytes at %#llx are not registered by key %#x",
			       s->length, (unsigned long long)s->addr, s->lkey);
	}
}

static int post_receive(struct queue_pair *q, const struct ibv_recv_wr *wr)
{
	struct queue_area *a = q->area;
	uint64_t posted = atomic_load(&a->posted);

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_recv_sge)
		return EINVAL;
	if (posted - q->polled >= a->slots)
		misuse("ibv_post_recv: all %u receives of the queue are in use", a->slots);
	fill_receive(q, &a->receives[posted % a->slots], wr);
	touch_post(&a->receives[posted % a->slots]);
	atomic_store(&a->posted, posted + 1);
	return 0;
}

int queue_pair_post(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct queue_pair *q = queue_pair_of(qp);
	int rc = order_failure("ibv_post_recv");

	if (!rc && device_is_gone(qp->context))
		rc = EIO;
	if (rc) {
		*bad = wr;
		return rc;
	}
	pthread_mutex_lock(&q->recv_lock);
	for (; wr && !rc; wr = wr->next) {
		rc = post_receive(q, wr);
		if (rc)
			*bad = wr;
	}
	pthread_mutex_unlock(&q->recv_lock);
	if (atomic_load(&q->area->state) == QUEUE_ERROR)
		queue_pair_break(q);
	return rc;
}

/* ---- states ----------------------------------------------------------------------------- */

void queue_pair_connect(struct queue_pair *q, struct remote *remote, bool sends)
{
	uint32_t idle = QUEUE_IDLE;

	pthread_mutex_lock(&q->lock);
	q->remote = remote;
	if (sends && q->qp.state == IBV_QPS_INIT)
		q->qp.state = IBV_QPS_RTS;
	if (!order_is_silent() && !plug_is_down(q->adapter, q->port))
		atomic_compare_exchange_strong(&q->area->state, &idle, QUEUE_READY);
	pthread_mutex_unlock(&q->lock);
}

void queue_pair_disconnect(struct queue_pair *q)
{
	engine_cancel(&q->retry);
	pthread_mutex_lock(&q->lock);
	q->remote = NULL;
	pthread_mutex_unlock(&q->lock);
}

void queue_pair_break(struct queue_pair *q)
{
	area_lock(&q->area->filling);
	atomic_store(&q->area->state, QUEUE_ERROR);
	flush_receives(q);
	area_unlock(&q->area->filling);
	pthread_mutex_lock(&q->lock);
	q->qp.state = IBV_QPS_ERR;
	queue_pair_flush_sends(q);
	pthread_mutex_unlock(&q->lock);
	area_signal(completion_of(q->qp.recv_cq)->area,
		    completion_channel_fd(completion_of(q->qp.recv_cq)), 1);
	if (q->adapter->p.iwarp)
		engine_poke();
}

/* Only of a queue pair that sends, and only how soon its peer repeats what finds no receive. */
EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct queue_pair *q = queue_pair_of(qp);
	int rc = order_failure("ibv_modify_qp");

	if (!rc && device_is_gone(qp->context))
		rc = EIO;
	if (rc)
		return rc;
	/* A driver of iWARP has no such attribute; what it does then is not simulated. */
	if (mask != IBV_QP_MIN_RNR_TIMER || q->adapter->p.iwarp)
		misuse("ibv_modify_qp: attributes %#x", mask);
	pthread_mutex_lock(&q->lock);
	/* ib_verbs.h: IB_RNR_TIMER_491_52 is the last. core/verbs.c, qp_state_table: a queue pair
	 * that is about to send needs other attributes, too. */
	rc = attr->min_rnr_timer > RNR_TIMERS - 1 || qp->state != IBV_QPS_RTS ? EINVAL : 0;
	if (!rc)
		q->area->rnr_timer = attr->min_rnr_timer;
	pthread_mutex_unlock(&q->lock);
	return rc;
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	struct queue_pair *q = queue_pair_of(qp);
	int ordered = order_failure(__func__);

	if (ordered || device_is_gone(qp->context))
		return ordered ? ordered : EIO;
	(void)mask;
	memset(attr, 0, sizeof *attr);
	memset(init, 0, sizeof *init);
	pthread_mutex_lock(&q->lock);
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->ah_attr.grh.traffic_class = q->remote ? q->remote->tos : 0;
	attr->timeout = q->remote ? q->remote->ack_timeout : 0;
	attr->retry_cnt = q->remote ? q->remote->retry_count : 0;
	attr->rnr_retry = q->remote ? q->remote->rnr_retry_count : 0;
	attr->min_rnr_timer = (uint8_t)q->area->rnr_timer;
	pthread_mutex_unlock(&q->lock);
	attr->cap = (struct ibv_qp_cap){.max_send_wr = q->max_send,
					.max_recv_wr = q->area->slots,
					.max_send_sge = q->max_send_sge,
					.max_recv_sge = q->max_recv_sge,
					.max_inline_data = q->max_inline};
	init->cap = attr->cap;
	init->qp_type = qp->qp_type;
	init->send_cq = qp->send_cq;
	init->recv_cq = qp->recv_cq;
	return 0;
}

/* ---- completions ------------------------------------------------------------------------ */

void queue_pair_finish_send(struct queue_pair *q, enum ibv_wc_status status)
{
	struct completion *c = completion_of(q->qp.send_cq);
	struct send_entry *e = &q->sends[q->done % q->max_send];

	e->status = status;
	if (status != IBV_WC_SUCCESS)
		e->signaled = true;
	q->done++;
	if (q->delivered < q->done)
		q->delivered = q->done;
	q->tries = 0;
	if (!e->signaled)
		return;
	q->done_signaled++;
	area_signal(c->area, completion_channel_fd(c), status != IBV_WC_SUCCESS);
}

void queue_pair_flush_sends(struct queue_pair *q)
{
	while (q->done < q->posted)
		queue_pair_finish_send(q, IBV_WC_WR_FLUSH_ERR);
}

uint64_t queue_pair_completed(struct queue_pair *q, const struct completion *c)
{
	uint64_t n = 0;

	/* Only this thread reaps; what others add meanwhile is counted the next time. */
	if (q->qp.send_cq == &c->cq)
		n += atomic_load(&q->done_signaled) - q->reaped_signaled;
	if (q->qp.recv_cq == &c->cq)
		n += atomic_load(&q->area->filled) - q->polled;
	return n;
}

static enum ibv_wc_opcode completion_opcode(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_SEND
								       : IBV_WC_RDMA_WRITE;
}

static int reap_sends(struct queue_pair *q, bool flushed, int most, struct ibv_wc *wc)
{
	int n = 0;

	pthread_mutex_lock(&q->lock);
	while (n < most && q->reaped < q->done) {
		struct send_entry *e = &q->sends[q->reaped % q->max_send];

		if (e->status == IBV_WC_WR_FLUSH_ERR && !flushed)
			break;
		q->reaped++;
		transfer_check_untouched(q, e);
		if (!e->signaled)
			continue;
		q->reaped_signaled++;
		/* Of a failed completion nothing else is valid (ibv_poll_cq.3). */
		memset(&wc[n], e->status ? 0xee : 0, sizeof *wc);
		wc[n].wr_id = e->wr_id;
		wc[n].status = e->status;
		wc[n].vendor_err = 0;
		wc[n].qp_num = q->qp.qp_num;
		if (!e->status) {
			wc[n].opcode = completion_opcode(e->opcode);
			wc[n].byte_len = e->bytes;
		}
		n++;
	}
	pthread_mutex_unlock(&q->lock);
	return n;
}

static void describe_receive(const struct queue_pair *q, const struct area_receive *r,
			     struct ibv_wc *wc)
{
	memset(wc, r->status ? 0xee : 0, sizeof *wc);
	wc->wr_id = r->wr_id;
	wc->status = r->status;
	wc->vendor_err = 0;
	wc->qp_num = q->qp.qp_num;
	if (r->status)
		return;
	wc->opcode = r->opcode;
	wc->byte_len = r->bytes;
	wc->imm_data = r->imm;
	wc->wc_flags = r->flags;
}

/* The receive that is polled next gets an ordered status, and what follows it is flushed. */
static void spoil_receives(struct queue_pair *q, uint32_t status)
{
	struct queue_area *a = q->area;
	uint64_t filled;

	queue_pair_break(q);
	filled = atomic_load(&a->filled);
	a->receives[q->polled % a->slots].status = status;
	for (uint64_t i = q->polled + 1; i < filled; i++)
		a->receives[i % a->slots].status = IBV_WC_WR_FLUSH_ERR;
}

static int reap_receives(struct queue_pair *q, bool flushed, int most, struct ibv_wc *wc)
{
	struct queue_area *a = q->area;
	int n = 0;

	if (atomic_load(&a->state) == QUEUE_BROKEN)
		queue_pair_break(q);
	pthread_mutex_lock(&q->recv_lock);
	for (; n < most && q->polled < atomic_load(&a->filled); q->polled++) {
		struct area_receive *r = &a->receives[q->polled % a->slots];
		int ordered;

		if (r->status == IBV_WC_WR_FLUSH_ERR && !flushed)
			break;
		touch_take(r, q->qp.qp_num);
		ordered = r->status ? 0 : order_receive_status();
		if (ordered == ORDERED_EMPTY)
			r->bytes = 0;
		else if (ordered)
			spoil_receives(q, (uint32_t)ordered);
		describe_receive(q, r, &wc[n++]);
	}
	pthread_mutex_unlock(&q->recv_lock);
	return n;
}

int queue_pair_reap(struct queue_pair *q, const struct completion *c, int most, struct ibv_wc *wc)
{
	/* What broke the queue pair comes before all that was flushed for it, on both its queues.
	 * It was entered before the error state, which another thread may set meanwhile. */
	int passes = atomic_load(&q->area->state) == QUEUE_ERROR ? 2 : 1, n = 0;

	/* An adapter enters completions in the order in which they come, and the acknowledgement of
	 * a send may come before or after what the peer has sent since. So either is first in turn,
	 * and neither keeps the other back. */
	bool sends_first = !atomic_load(&q->sends_first);

	atomic_store(&q->sends_first, sends_first);
	for (int i = 0; i < 2 * passes && n < most; i++) {
		bool flushed = i >= 2;

		if ((i % 2 == 0) == sends_first) {
			if (q->qp.send_cq == &c->cq)
				n += reap_sends(q, flushed, most - n, wc + n);
		} else if (q->qp.recv_cq == &c->cq) {
			n += reap_receives(q, flushed, most - n, wc + n);
		}
	}
	return n;
}
