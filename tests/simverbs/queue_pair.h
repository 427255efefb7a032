/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_QUEUE_PAIR_H
#define SIMVERBS_QUEUE_PAIR_H

/* Queue pairs: their rings, states, and completions. transfer.c moves what they send. */

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include "area.h"
#include "completion.h"
#include "engine.h"
#include "host.h"
#include "remote.h"

struct send_entry {
	uint64_t wr_id, remote_addr;
	enum ibv_wr_opcode opcode;
	enum ibv_wc_status status, ordered; /* ordered: order.h */
	bool signaled, solicited, inlined;
	uint32_t bytes, imm, rkey, sges;
	uint64_t arrives_ns, acked_ns; /* delay.h */
	uint64_t touch; /* transfer.h */
	struct area_sge sge[AREA_SGES];
};

struct queue_pair {
	struct ibv_qp qp;
	struct queue_area *area;
	size_t area_bytes;
	int area_fd;
	uint32_t max_send, max_send_sge, max_recv_sge, max_inline;
	bool all_signaled;
	uint64_t locked;
	const struct host_adapter *adapter;
	unsigned port;

	pthread_mutex_t recv_lock; /* of posting receives, and of polled */
	uint64_t polled;
	_Atomic bool sends_first; /* the last time that completions were polled */

	pthread_mutex_t lock; /* of all below */
	struct send_entry *sends; /* ring of max_send */
	uint8_t *inlined; /* max_inline bytes for each */
	/* posted >= delivered >= done >= reaped. Of those, the signaled ones: */
	uint64_t posted, delivered, done, reaped;
	_Atomic uint64_t done_signaled;
	uint64_t reaped_signaled;
	struct remote *remote; /* NULL: not connected */
	bool must_listen; /* iWARP, accepting side: nothing has come yet */
	unsigned tries; /* of the send that is next */
	struct engine_timer retry;
	bool dead; /* a fatal error: neither completions nor messages */
	unsigned async_taken; /* async.c */
	struct queue_pair *next;
};
static inline struct queue_pair *queue_pair_of(struct ibv_qp *qp)
{
	return (struct queue_pair *)qp;
}

/* As ibv_create_qp(), and then ready for receives. NULL with errno. */
struct queue_pair *queue_pair_new(struct ibv_pd *pd, unsigned port, struct ibv_qp_init_attr *attr);
/* Once it is not connected. */
void queue_pair_free(struct queue_pair *q);

/* Connects it: the peer may send, and with `sends' it may send itself. Engine's lock. */
void queue_pair_connect(struct queue_pair *q, struct remote *remote, bool sends);
/* Ends the use of the remote. Engine's lock. */
void queue_pair_disconnect(struct queue_pair *q);
/* Error state: the peer touches none of our memory any more, and all work is flushed. */
void queue_pair_break(struct queue_pair *q);

/* Flushes all sends; under q->lock. */
void queue_pair_flush_sends(struct queue_pair *q);
/* Completes the oldest send; under q->lock. */
void queue_pair_finish_send(struct queue_pair *q, enum ibv_wc_status status);

/* For completion.c: completions for c that wait; take at most that many. */
uint64_t queue_pair_completed(struct queue_pair *q, const struct completion *c);
int queue_pair_reap(struct queue_pair *q, const struct completion *c, int most, struct ibv_wc *wc);

/* Peers get no answer from any queue pair of this port, until queue_pair_listen(). port 0: of all
 * ports; a NULL: of all adapters. */
void queue_pair_silence(const struct host_adapter *a, unsigned port);
/* Engine's lock. */
void queue_pair_listen(const struct host_adapter *a, unsigned port);
/* An error after which nothing comes any more. Engine's lock. */
void queue_pair_kill(struct queue_pair *q);
/* Kills those that use the completion queue, or all of an adapter. */
void queue_pair_kill_users(const struct completion *c);
void queue_pair_kill_adapter(const struct host_adapter *a);

/* A region is gone: the memory of receives that are posted with its key is the program's again, as
 * what arrives for them cannot be written (touch.h). */
void queue_pair_give_back(uint32_t pd, uint32_t key);
/* Waits until no peer copies into the memory of a protection domain. */
void queue_pair_settle(uint32_t pd);

#endif
