/* SPDX-License-Identifier: Apache-2.0 */

/* Must not include verbs.h: with its inline functions, clang takes those for the ones here. */
#include "operations.h"

int ___ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size);
int ibv_poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc);
int ibv_req_notify_cq(struct ibv_cq *cq, int solicited);
int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

int ___ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size)
{
	return device_query_port(context, port, attr, size);
}

int ibv_poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	return completion_poll(cq, most, wc);
}

int ibv_req_notify_cq(struct ibv_cq *cq, int solicited)
{
	return completion_arm(cq, solicited);
}

int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return transfer_post(qp, wr, bad);
}

int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return queue_pair_post(qp, wr, bad);
}

const struct operations operations = {
	.query_port = ___ibv_query_port,
	.poll_cq = ibv_poll_cq,
	.req_notify_cq = ibv_req_notify_cq,
	.post_send = ibv_post_send,
	.post_recv = ibv_post_recv,
};
