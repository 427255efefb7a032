/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void end_need(bool good, const char *what, int line)
{
	if (good)
		return;
	fprintf(stderr, "verbs_end.c:%d: %s: %s\n", line, what, strerror(errno));
	abort();
}

static struct sockaddr_storage make_address(const char *ip, uint16_t port)
{
	struct sockaddr_storage a = {0};
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a;
	struct sockaddr_in *in4 = (struct sockaddr_in *)&a;

	if (strchr(ip, ':')) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		END_NEED(inet_pton(AF_INET6, ip, &in6->sin6_addr) == 1);
	} else {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(port);
		END_NEED(inet_pton(AF_INET, ip, &in4->sin_addr) == 1);
	}
	return a;
}

uint16_t end_listen(struct end *e, const char *ip)
{
	struct sockaddr_storage a = make_address(ip, 0);

	e->events = rdma_create_event_channel();
	END_NEED(e->events != NULL);
	END_NEED(rdma_create_id(e->events, &e->listener, NULL, RDMA_PS_TCP) == 0);
	END_NEED(rdma_bind_addr(e->listener, (struct sockaddr *)&a) == 0);
	END_NEED(rdma_listen(e->listener, 8) == 0);
	return ntohs(rdma_get_src_port(e->listener));
}

static struct end_event next_event(struct rdma_event_channel *events, struct rdma_cm_id **id)
{
	struct pollfd p = {.fd = events->fd, .events = POLLIN};
	struct end_event to = {0};
	struct rdma_cm_event *got;

	END_NEED(poll(&p, 1, END_WAIT_MS) == 1);
	END_NEED(rdma_get_cm_event(events, &got) == 0);
	to.what = got->event;
	to.status = got->status;
	to.len = got->param.conn.private_data_len;
	if (to.len)
		memcpy(to.data, got->param.conn.private_data, to.len);
	if (id)
		*id = got->id;
	END_NEED(rdma_ack_cm_event(got) == 0);
	return to;
}

struct end_event end_expect(struct end *e)
{
	return next_event(e->own ? e->own : e->events, NULL);
}

void end_take(struct end *e, struct end_event *request)
{
	*request = next_event(e->events, &e->id);
	END_NEED(request->what == RDMA_CM_EVENT_CONNECT_REQUEST);
	e->own = rdma_create_event_channel();
	END_NEED(e->own && rdma_migrate_id(e->id, e->own) == 0);
}

void end_resolve(struct end *e, const char *ip, uint16_t port)
{
	struct sockaddr_storage a = make_address(ip, port);

	e->events = rdma_create_event_channel();
	END_NEED(e->events != NULL);
	END_NEED(rdma_create_id(e->events, &e->id, NULL, RDMA_PS_TCP) == 0);
	END_NEED(rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&a, 1000) == 0);
	END_NEED(end_expect(e).what == RDMA_CM_EVENT_ADDR_RESOLVED);
	END_NEED(!e->ack_timeout ||
		 rdma_set_option(e->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &e->ack_timeout,
				 sizeof e->ack_timeout) == 0);
	END_NEED(rdma_resolve_route(e->id, 1000) == 0);
	END_NEED(end_expect(e).what == RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void end_equip(struct end *e, unsigned receives, int access)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = END_SLOTS,
			.max_recv_wr = END_SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	size_t bytes = (size_t)END_SLOTS * END_BYTES;

	e->pd = ibv_alloc_pd(e->id->verbs);
	e->channel = ibv_create_comp_channel(e->id->verbs);
	END_NEED(e->pd && e->channel);
	e->cq = ibv_create_cq(e->id->verbs, e->cqe ? e->cqe : 2 * END_SLOTS, NULL, e->channel, 0);
	END_NEED(e->cq != NULL);
	init.send_cq = init.recv_cq = e->cq;
	END_NEED(rdma_create_qp(e->id, e->pd, &init) == 0);
	e->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	END_NEED(e->memory != MAP_FAILED);
	/* Content from before it is registered stays. */
	memset(e->memory, 0x5a, bytes);
	e->mr = ibv_reg_mr(e->pd, e->memory, bytes, IBV_ACCESS_LOCAL_WRITE | access);
	END_NEED(e->mr && e->memory[0] == 0x5a && e->memory[bytes - 1] == 0x5a);
	for (unsigned i = 0; i < receives; i++)
		end_post(e, i);
}

int end_connect(struct end *e, const void *data, uint8_t len, uint8_t rnr_retry)
{
	struct rdma_conn_param p = {.private_data = data,
				    .private_data_len = len,
				    .retry_count = 1,
				    .rnr_retry_count = rnr_retry};

	return rdma_connect(e->id, &p);
}

int end_accept(struct end *e, uint8_t rnr_retry)
{
	struct rdma_conn_param p = {.rnr_retry_count = rnr_retry};

	return rdma_accept(e->id, &p);
}

static struct ibv_sge slot_range(struct end *e, unsigned slot, uint32_t len)
{
	return (struct ibv_sge){.addr = (uintptr_t)(e->memory + (size_t)slot * END_BYTES),
				.length = len,
				.lkey = e->mr->lkey};
}

void end_post(struct end *e, unsigned slot)
{
	struct ibv_sge range = slot_range(e, slot, END_BYTES);
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &range, .num_sge = 1}, *bad;

	END_NEED(ibv_post_recv(e->id->qp, &wr, &bad) == 0);
}

static int post_send(struct end *e, struct ibv_send_wr *wr, unsigned slot, uint32_t len)
{
	struct ibv_sge range = slot_range(e, slot, len);
	struct ibv_send_wr *bad;

	wr->wr_id = slot;
	wr->sg_list = &range;
	wr->num_sge = 1;
	return ibv_post_send(e->id->qp, wr, &bad);
}

int end_send(struct end *e, unsigned slot, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	return post_send(e, &wr, slot, len);
}

int end_write(struct end *e, enum ibv_wr_opcode opcode, uint32_t len, uint64_t to, uint32_t key)
{
	struct ibv_send_wr wr = {.opcode = opcode, .imm_data = htonl(77)};

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = key;
	return post_send(e, &wr, 0, len);
}

struct ibv_wc end_reap(struct end *e)
{
	struct pollfd p = {.fd = e->channel->fd, .events = POLLIN};
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		int n = ibv_poll_cq(e->cq, 1, &wc);

		if (n)
			return wc;
		END_NEED(ibv_req_notify_cq(e->cq, 0) == 0);
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (n)
			return wc;
		END_NEED(poll(&p, 1, END_WAIT_MS) == 1);
		END_NEED(ibv_get_cq_event(e->channel, &cq, &context) == 0 && cq == e->cq);
		ibv_ack_cq_events(cq, 1);
	}
}

void end_close(struct end *e)
{
	int destroyed = e->gone ? EIO : 0;

	if (e->id && e->id->qp) {
		rdma_disconnect(e->id);
		rdma_destroy_qp(e->id);
	}
	if (e->cq)
		END_NEED(ibv_destroy_cq(e->cq) == destroyed);
	if (e->channel)
		END_NEED(ibv_destroy_comp_channel(e->channel) == (e->gone ? EBUSY : 0));
	if (e->channel && e->gone)
		close(e->channel->fd);
	if (e->mr)
		END_NEED(ibv_dereg_mr(e->mr) == destroyed);
	if (e->pd)
		END_NEED(ibv_dealloc_pd(e->pd) == destroyed);
	if (e->memory)
		munmap(e->memory, (size_t)END_SLOTS * END_BYTES);
	if (e->id)
		END_NEED(rdma_destroy_id(e->id) == 0);
	if (e->listener)
		END_NEED(rdma_destroy_id(e->listener) == 0);
	if (e->own)
		rdma_destroy_event_channel(e->own);
	if (e->events)
		rdma_destroy_event_channel(e->events);
	*e = (struct end){0};
}
