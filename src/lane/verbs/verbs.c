/* SPDX-License-Identifier: Apache-2.0 */

/* Moves blocks over RDMA verbs: a wire after it is connected. */

#include "lane/verbs/verbs_impl.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/io.h"

/* Polling the completion queue for about as long as a wake-up takes is never much worse than
 * sleeping at once, and it often saves the wake-up. It needs another free processor, on which the
 * other threads continue meanwhile. */
enum { SPIN_NS = 30000, SPIN_CPUS = 3 };

enum { PACKET_MOST = 4096 }; /* the largest path MTU there is */

static const struct wire_ops verbs_ops;

static struct verbs *verbs_of(struct wire *w)
{
	return (struct verbs *)w;
}

int verbs_new(struct lane *l, uint32_t epoch, struct verbs **out)
{
	struct verbs *v = calloc(1, sizeof *v);

	if (!v)
		return fail_as(OUT_MEMORY, "allocate an RDMA connection: %m");
	v->wire.ops = &verbs_ops;
	v->lane = l;
	v->pool = lane_pool(l);
	v->side = lane_side_of(l);
	v->depth = lane_stated_depth(l);
	v->op = lane_rdma_op(l);
	v->epoch = epoch;
	v->wire.exposed = v->side == LANE_SINK && verbs_writes(v);
	v->spin_ns = cpu_share() >= SPIN_CPUS ? SPIN_NS : 0;
	atomic_init(&v->broken, false);
	v->async_fd = -1;
	v->posted = calloc(v->depth, sizeof *v->posted);
	v->arrivals = calloc(v->depth, sizeof *v->arrivals);
	v->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!v->posted || !v->arrivals || v->wake < 0) {
		fail_as(OUT_MEMORY, "allocate an RDMA connection: %m");
		verbs_free(v);
		return -1;
	}
	*out = v;
	return 0;
}

static void free_wire(struct verbs *v)
{
	verbs_async_leave(v);
	/* The id has an event channel of its own, so this does not wait. It notifies the peer and
	 * flushes the queues. It does no harm if the id is not connected. */
	if (v->has_qp && !v->request_pending)
		rdma_disconnect(v->id);
	/* Its queue pair may belong to this protection domain. */
	verbs_free(v->stale);
	verbs_unequip(v);
	if (v->id)
		rdma_destroy_id(v->id);
	verbs_channel_close(v->events);
	close_fd(v->wake);
	free(v->posted);
	free(v->arrivals);
	free(v);
}

static void *run_free_wire(void *arg)
{
	pthread_setname_np(pthread_self(), "verbs-close");
	free_wire(arg);
	return NULL;
}

/*
 * The kernel's iWARP frees nothing while a connection request has no answer (5 s on siw), and it
 * cannot cancel the request. An aborted lane, or its next attempt, must not wait for that, so a
 * thread frees the wire. But the memory is deregistered at once: the next attempt registers it
 * again, and locking it twice could exceed the limit.
 */
static bool free_in_thread(struct verbs *v)
{
	sigset_t all, old;
	pthread_t t;
	int rc;

	verbs_release_memory(v);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t, NULL, run_free_wire, v);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_detach(t);
	return !rc;
}

void verbs_free(struct verbs *v)
{
	if (!v || (v->request_pending && free_in_thread(v)))
		return;
	free_wire(v);
}

/* Whether a call on this wire has to fail. */
static bool is_broken(const struct verbs *v)
{
	return v->why.code || atomic_load(&v->broken) || atomic_load(&v->struck);
}

/* ---- completions and events --------------------------------------------------------- */

/* After the first failure the adapter flushes all other work. So only a completion that was not
 * flushed shows the cause. */
static int work_failed(struct verbs *v, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		return verbs_ended(v, "%s: the connection was closed", v->wire.name);
	return verbs_fail(v, OUT_PEER_LOST, "%s, queue pair 0x%x: %s: %s", v->wire.name,
			  v->id->qp->qp_num, verbs_work_text(wc->wr_id),
			  ibv_wc_status_str(wc->status));
}

static int accept_credit(struct verbs *v, uint32_t slot, uint32_t len)
{
	struct credit c;

	if (len != CREDIT_SIZE)
		return verbs_fail(v, OUT_PROTOCOL, "%s: received a credit of %u bytes",
				  v->wire.name, len);
	if (credit_decode(verbs_credit_at(v, slot), &c))
		return verbs_fail(v, failed()->code, "%s: %s", v->wire.name, failed()->text);
	if (c.epoch != v->epoch || !v->block_sent || c.stored <= v->stored ||
	    c.stored > v->next_block)
		return verbs_fail(
			v, OUT_PROTOCOL,
			"%s: received a credit for %llu blocks of epoch %u after %llu of %llu "
			"blocks of epoch %u",
			v->wire.name, (unsigned long long)c.stored, c.epoch,
			(unsigned long long)v->stored, (unsigned long long)v->next_block, v->epoch);
	/* Post the receive again before using the credit: see verbs_impl.h. */
	if (verbs_post_credit(v, slot))
		return -1;
	v->stored = c.stored;
	v->credited = true;
	return 0;
}

/* The peer chooses which operation completes a receive. A WRITE WITH IMMEDIATE would complete it
 * and leave the posted memory unchanged. */
static int check_opcode(struct verbs *v, const struct ibv_wc *wc, enum verbs_work work)
{
	enum ibv_wc_opcode due = work == WORK_RECV_BLOCK ? verbs_block_opcode(v) : IBV_WC_RECV;

	if (wc->opcode == due)
		return 0;
	return verbs_fail(v, OUT_PROTOCOL,
			  "%s: the peer used another RDMA operation than the agreed one",
			  v->wire.name);
}

static int work_done(struct verbs *v, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	enum verbs_work work = (enum verbs_work)(wc->wr_id >> 32);

	if (work <= WORK_WRITE_EMPTY) {
		v->sends--;
		v->sends_done++;
	}
	if (wc->status != IBV_WC_SUCCESS)
		return work_failed(v, wc);
	if (work >= WORK_RECV_BLOCK) {
		if (check_opcode(v, wc, work))
			return -1;
		/* No end sends this. A queue pair of rxe has completed a receive so: its wire is
		 * not to be trusted, and what it lost comes over the next one. */
		if (wc->byte_len == 0)
			return verbs_fail(v, OUT_PEER_LOST, "%s: received an empty message",
					  v->wire.name);
		v->heard = true;
	}
	switch (work) {
	case WORK_SEND_BLOCK:
		v->first_unacked++; /* sends complete in the order in which they were posted */
		return 0;
	case WORK_RECV_BLOCK:
		return verbs_block_arrived(v, wc);
	case WORK_RECV_CREDIT:
		return accept_credit(v, slot, wc->byte_len);
	case WORK_RECV_HELLO:
		if (wc->byte_len != LANE_HELLO_SIZE)
			return verbs_fail(v, OUT_PROTOCOL, "%s: received a hello of %u bytes",
					  v->wire.name, wc->byte_len);
		v->hellos++;
		return 0;
	default:
		return 0;
	}
}

/* Processes completions. Returns their number, or -1 if they cannot be polled. */
static int poll_completions(struct verbs *v)
{
	struct ibv_wc wc[REAP_MOST];
	int n = ibv_poll_cq(v->cq, REAP_MOST, wc);

	if (n < 0) {
		verbs_async_read(v);
		/* No more completions can be reaped. */
		if (atomic_load(&v->struck))
			return verbs_async_failed(v);
		return verbs_fail(v, OUT_PEER_LOST, "%s: poll the completion queue: failed",
				  v->wire.name);
	}
	v->heard = false;
	for (int i = 0; i < n; i++)
		work_done(v, &wc[i]);
	if (v->heard)
		lane_heard_wire(v->lane);
	return n;
}

void verbs_reap_last(struct verbs *v)
{
	while (!v->wire.knows_cause && poll_completions(v) > 0)
		;
}

/* Processes completions. Returns their number, or -1 if the wire is broken. */
static int reap_completions(struct verbs *v)
{
	int n = poll_completions(v);

	if (!v->why.code)
		return n;
	verbs_reap_last(v);
	return fail_again(&v->why);
}

/* An event of the adapter broke the wire. */
static int fail_struck(struct verbs *v)
{
	verbs_reap_last(v);
	return verbs_async_failed(v);
}

int verbs_call_failed(struct verbs *v, int rc, const char *call)
{
	verbs_async_read(v);
	if (atomic_load(&v->struck))
		return fail_struck(v);
	errno = abs(rc);
	return verbs_fail(v, OUT_PEER_LOST, "%s: %s: %m", v->wire.name, call);
}

static int spin_for_completion(struct verbs *v)
{
	uint64_t until;
	int n = 0;

	if (!v->spin_ns)
		return 0;
	until = clock_ns() + v->spin_ns;
	while (n == 0 && clock_ns() < until)
		n = reap_completions(v);
	return n;
}

/* The channel becomes readable only for completions after this call. So the caller polls the queue
 * once more before it sleeps. */
static int arm_completion_event(struct verbs *v)
{
	int rc;

	if (v->armed)
		return 0;
	rc = ibv_req_notify_cq(v->cq, 0);
	if (rc)
		return verbs_call_failed(v, rc, "request completion events");
	v->armed = true;
	return 0;
}

static void take_completion_event(struct verbs *v)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(v->channel, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	v->armed = false;
}

static int sleep_until(struct verbs *v, uint64_t until_ms)
{
	struct pollfd fds[] = {
		{.fd = v->channel->fd, .events = POLLIN},
		{.fd = v->events->fd, .events = POLLIN},
		{.fd = lane_abort_fd(v->lane), .events = POLLIN},
		{.fd = v->wake, .events = POLLIN},
		{.fd = v->async_fd, .events = POLLIN},
	};
	int n = poll(fds, sizeof fds / sizeof *fds, until_ms ? clock_left(until_ms) : -1);

	if (n < 0 && errno != EINTR)
		return verbs_fail(v, OUT_PEER_LOST, "%s: poll: %m", v->wire.name);
	if (n <= 0)
		return 0;
	if (fds[0].revents)
		take_completion_event(v);
	if (fds[1].revents && verbs_take_events(v))
		return -1;
	if (fds[2].revents)
		return verbs_ended(v, "%s: the lane was aborted", v->wire.name);
	if (fds[4].revents)
		verbs_async_read(v);
	return 0;
}

int verbs_progress(struct verbs *v, uint64_t until_ms)
{
	int n;

	if (v->why.code)
		return fail_again(&v->why);
	if (atomic_load(&v->struck))
		return fail_struck(v);
	if (atomic_load(&v->broken)) {
		/* What broke the wire here may have made the other end give it up. */
		verbs_reap_last(v);
		return verbs_ended(v, "%s: the connection was abandoned", v->wire.name);
	}
	n = reap_completions(v);
	if (n == 0)
		n = spin_for_completion(v);
	if (n == 0) {
		if (arm_completion_event(v))
			return -1;
		n = reap_completions(v);
	}
	if (n == 0)
		return sleep_until(v, until_ms);
	return n < 0 ? -1 : 0;
}

/* ---- sending ------------------------------------------------------------------------ */

int verbs_post_sends(struct verbs *v, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(v->id->qp, first, &bad);

	if (rc)
		return verbs_call_failed(v, rc, "post a send");
	for (; first; first = first->next)
		v->sends++;
	return 0;
}

static int post_send(struct verbs *v, enum verbs_work work, struct ibv_sge *sge, unsigned flags)
{
	struct ibv_send_wr wr = {.wr_id = work_id(work, 0),
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = flags};

	return verbs_post_sends(v, &wr);
}

int verbs_write_empty(struct verbs *v)
{
	struct ibv_send_wr wr = {.wr_id = work_id(WORK_WRITE_EMPTY, 0),
				 .opcode = IBV_WR_RDMA_WRITE};

	return v->sends < v->sends_max ? verbs_post_sends(v, &wr) : 0;
}

int verbs_send_hello(struct verbs *v, enum hello_place place)
{
	struct ibv_sge sge = {.addr = (uintptr_t)verbs_hello_at(v, place),
			      .length = LANE_HELLO_SIZE,
			      .lkey = v->ring_mr->lkey};

	return post_send(v, WORK_SEND_HELLO, &sge, 0);
}

/* Whether it is still unknown if blocks get through: large packets may be lost where small ones get
 * through. */
static bool is_unproven(const struct verbs *v)
{
	return v->large_sent ? v->stored <= v->first_large_block : !v->credited;
}

/* Returns -1 if blocks have waited too long for a credit. */
static int check_sink_alive(struct verbs *v)
{
	/* An acknowledgement by the adapter is a sign of life, too. */
	struct wire_signs now = {.credits = v->stored + v->first_unacked,
				 .acknowledged = v->sends_done,
				 .awaits_ack = v->sends > 0,
				 .fresh = is_unproven(v)};

	if (patience_look(&v->patience, v->lane, &now))
		return verbs_fail(v, OUT_PEER_LOST, "%s", failed()->text);
	return 0;
}

static int await_sink(struct verbs *v)
{
	if (verbs_progress(v, patience_next(&v->patience, v->lane, is_unproven(v))))
		return -1;
	return check_sink_alive(v);
}

/* Waits for room in the send queue. Its entries are free only after their completions were polled,
 * even if a credit has already arrived: otherwise the queue overflows (siw). */
static int await_send_room(struct verbs *v, uint32_t room)
{
	while (v->sends + room > v->sends_max) {
		/* A sink waits without limit: the source notices if no credit arrives. */
		if (v->side == LANE_SOURCE ? await_sink(v) : verbs_progress(v, 0))
			return -1;
	}
	return 0;
}

static int verbs_send(struct wire *w, struct block *b)
{
	struct verbs *v = verbs_of(w);

	if (!v->block_sent) {
		v->block_sent = true;
		v->next_block = v->stored = v->first_unacked = b->number;
	}
	if (is_broken(v))
		return verbs_progress(v, 0);
	while (b->number - v->stored >= v->depth) {
		if (await_sink(v))
			return -1;
	}
	if (await_send_room(v, verbs_sends_a_block(v)) || verbs_send_block(v, b))
		return -1;
	v->next_block = b->number + 1;
	if (!v->large_sent && b->len > PACKET_MOST) {
		v->large_sent = true;
		v->first_large_block = b->number;
	}
	return 0;
}

/* A block that the adapter may still read counts as not stored, even if the sink has it. */
static uint64_t count_credited(const struct verbs *v)
{
	return v->stored < v->first_unacked ? v->stored : v->first_unacked;
}

/* A caller that only polls must also learn that the wire broke. */
static int poll_credits(struct verbs *v)
{
	int n;

	if (is_broken(v))
		return verbs_progress(v, 0);
	n = reap_completions(v);
	if (n < 0)
		return -1;
	return n > 0 ? 0 : check_sink_alive(v);
}

static int verbs_credit(struct wire *w, uint64_t least, uint64_t *stored)
{
	struct verbs *v = verbs_of(w);

	if (least == 0 && count_credited(v) < v->next_block && poll_credits(v))
		return -1;
	while (count_credited(v) < least) {
		if (await_sink(v))
			return -1;
	}
	*stored = count_credited(v);
	return 0;
}

static int verbs_grant(struct wire *w, uint64_t stored)
{
	struct verbs *v = verbs_of(w);
	struct credit c = {.epoch = v->epoch, .stored = stored};
	uint8_t *at = verbs_credit_at(v, v->credit_slot);
	struct ibv_sge sge = {.addr = (uintptr_t)at,
			      .length = CREDIT_SIZE,
			      .lkey = v->ring_mr->lkey};

	/* Strictly increasing: see verbs_impl.h. */
	if (stored <= v->granted)
		return 0;
	if (is_broken(v))
		return verbs_progress(v, 0);
	if (await_send_room(v, 1))
		return -1;
	credit_encode(&c, at);
	v->credit_slot = (v->credit_slot + 1) % v->sends_max;
	if (post_send(v, WORK_SEND_CREDIT, &sge, v->sends_inline ? IBV_SEND_INLINE : 0))
		return -1;
	v->granted = stored;
	return 0;
}

/* ---- receiving ---------------------------------------------------------------------- */

static int verbs_post(struct wire *w, struct block *b)
{
	struct verbs *v = verbs_of(w);

	/* post_receives() posted all blocks before the wire was connected. */
	if (v->posted[b->slot])
		return 0;
	if (v->why.code)
		return fail_again(&v->why);
	return verbs_post_block(v, b->slot);
}

/* With `wait', waits until a block has arrived. Returns -1 if the wire is broken. */
static int await_block(struct verbs *v, bool wait)
{
	if (is_broken(v))
		return verbs_progress(v, 0);
	if (!v->arrivals_count && !wait)
		return reap_completions(v) < 0 ? -1 : 0;
	while (!v->arrivals_count) {
		if (verbs_progress(v, 0))
			return -1;
	}
	return 0;
}

static int verbs_recv(struct wire *w, bool wait, struct block **out)
{
	struct verbs *v = verbs_of(w);
	struct arrival a;

	*out = NULL;
	if (await_block(v, wait))
		return -1;
	if (!v->arrivals_count)
		return 0;
	a = v->arrivals[v->arrivals_first];
	v->arrivals_first = (v->arrivals_first + 1) % v->depth;
	v->arrivals_count--;
	*out = &v->pool->blocks[a.slot];
	(*out)->len = a.len - LANE_HEAD;
	return 0;
}

static void verbs_break(struct wire *w)
{
	struct verbs *v = verbs_of(w);

	atomic_store(&v->broken, true);
	raise_event(v->wake);
}

static void verbs_close(struct wire *w)
{
	verbs_free(verbs_of(w));
}

static const struct wire_ops verbs_ops = {
	.send = verbs_send,
	.credit = verbs_credit,
	.post = verbs_post,
	.recv = verbs_recv,
	.grant = verbs_grant,
	.break_ = verbs_break,
	.close = verbs_close,
};
