/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_OPERATIONS_H
#define SIMVERBS_OPERATIONS_H

/*
 * The operations of a context, exported under the names of verbs.h's inline functions that call
 * them. So a preloaded library can take their place, as with any other function
 * (tests/faults/every_call.c).
 */

#include <stddef.h>
#include <stdint.h>

/* As ibv_NAME(), which a file that includes verbs.h can't name without its own copy of that. */
struct ibv_context;
struct ibv_cq;
struct ibv_port_attr;
struct ibv_qp;
struct ibv_recv_wr;
struct ibv_send_wr;
struct ibv_wc;

struct operations {
	int (*query_port)(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t size);
	int (*poll_cq)(struct ibv_cq *, int most, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int solicited);
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
};
extern const struct operations operations;

/* What they are, in the files that they are about. */
int device_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size);
int completion_poll(struct ibv_cq *cq, int most, struct ibv_wc *wc);
int completion_arm(struct ibv_cq *cq, int solicited);
int transfer_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int queue_pair_post(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
