/* SPDX-License-Identifier: Apache-2.0 */

/* What a connection asks of its adapter before it connects: times and retries. */

#include <errno.h>
#include <stdlib.h>
#include "base/log.h"
#include "lane/verbs/verbs_impl.h"

enum {
	/* ib_device_attr.vendor_id, drivers/infiniband/sw of Linux: rxe/rxe_param.h, siw/siw.h */
	RXE_VENDOR = 0xffffff,
	SIW_VENDOR = 0x626d74,
	/* The most that its 3 bits hold, as with perftest (DEF_RETRY_COUNT) and NCCL
	 * (IB_RETRY_CNT). rxe repeats for ever then (rxe_comp.c, rxe_completer()). */
	RETRIES = 7,
	RETRIES_RXE = 6,
	RNR_RETRIES = 7, /* for ever (rdma_connect(3)), as with rsockets, perftest and NCCL */
	/* 0.64 ms (enum ib_rnr_timeout of Linux), as with perftest and libibverbs' own examples;
	 * libfabric sets it in the same way (vrb_set_rnr_timer()). The connection manager sets 0
	 * (cm_init_qp_rtr_attr() of cm.c), which is 655 ms, and no option of rdma_set_option(3)
	 * changes that. */
	MIN_RNR_TIMER = 12,
	/* An ACK timeout of n is 4.096 us * 2^n (rdma_set_option(3)): 67 ms, and 1.07 s. */
	ACK_UNIT_NS = 4096,
	ACK_TIMEOUT_ROCE = 14,
	ACK_TIMEOUT_IB = 18,
	ACK_TIMEOUT_MOST = 20,
};

int verbs_examine(struct verbs *v)
{
	struct verbs_adapter *a = &v->adapter;
	const char *name = ibv_get_device_name(v->id->verbs->device);
	bool iwarp = v->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;

	errno = abs(ibv_query_device(v->id->verbs, &a->device));
	if (errno)
		return verbs_fail(v, OUT_TRANSPORT, "query %s: %m", name);
	errno = abs(ibv_query_port(v->id->verbs, v->id->port_num, &a->port));
	if (errno)
		return verbs_fail(v, OUT_TRANSPORT, "query the port of %s: %m", name);
	a->kind = iwarp                                           ? ADAPTER_IWARP
		  : a->port.link_layer == IBV_LINK_LAYER_ETHERNET ? ADAPTER_ROCE
								  : ADAPTER_INFINIBAND;
	a->rxe = a->kind == ADAPTER_ROCE && a->device.vendor_id == RXE_VENDOR;
	a->siw = a->kind == ADAPTER_IWARP && a->device.vendor_id == SIW_VENDOR;
	return 0;
}

uint8_t verbs_retry_count(const struct verbs *v)
{
	return v->adapter.rxe ? RETRIES_RXE : RETRIES;
}

uint8_t verbs_rnr_retry_count(const struct verbs *v)
{
	return v->adapter.rxe || v->adapter.siw ? 0 : RNR_RETRIES;
}

/*
 * How long an adapter waits for an acknowledgement before it sends again; 0: leave that to the
 * connection manager.
 *
 * A receiver asks for packets that are missing before the last one that came. So only the loss of
 * the last packets, or of their acknowledgements, costs this time. The connection manager takes
 * 2.1 s for RoCE (cma.c of Linux 6.1: packet lifetime 18, and 1 more; 0.5 s in later ones), where
 * congested switches drop packets. RoCE has perftest's value (DEF_QP_TIME 14). A lane that breaks
 * because of it is mended. An adapter with a larger minimum uses that (ConnectX-2: about 500 ms,
 * RAMCloud's wiki).
 *
 * InfiniBand holds packets up instead of dropping them. UCX takes 1 s, which was too little for
 * JUWELS Booster (picongpu #4288), and NCCL 4.3 s (IB_TIMEOUT 20). There the value is the largest
 * with which all tries fit into the lane's timeout, and at most UCX's: with 9 s or more.
 *
 * These are the shortest times: an adapter may wait for up to four times as long (InfiniBand's
 * specification, 9.7.6.1.3; assumed). So it may report a dead path after four timeouts only. The
 * lane does not wait for that: lane/patience.h ends the wire after one.
 *
 * The values are at least four round-trip times, or the adapter would repeat what is in flight.
 *
 * rxe's acknowledgements are made by a processor of the peer, which may be busy, and iWARP has
 * TCP's retransmissions.
 */
static uint8_t choose_ack_timeout(const struct verbs *v)
{
	uint64_t timeout_ns = (uint64_t)lane_timeout_ms(v->lane) * 1000000;
	uint64_t least_ns = (uint64_t)lane_host_rtt_us(v->lane) * 1000 * 4;
	uint8_t n = v->adapter.kind == ADAPTER_ROCE ? ACK_TIMEOUT_ROCE : ACK_TIMEOUT_IB;

	if (v->adapter.kind == ADAPTER_IWARP || v->adapter.rxe)
		return 0;
	while (n > ACK_TIMEOUT_ROCE && ((RETRIES + 1ULL) * ACK_UNIT_NS << n) > timeout_ns)
		n--;
	while (n < ACK_TIMEOUT_MOST && (uint64_t)ACK_UNIT_NS << n < least_ns)
		n++;
	return n;
}

/* The kernel applies the ACK timeout to this end's queue pair only (rdma_set_ack_timeout(), since
 * Linux 5.1). Older ones report ENOSYS, and continue with their own value. */
void verbs_set_options(struct verbs *v)
{
	uint8_t n = choose_ack_timeout(v);

	if (n && rdma_set_option(v->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &n, sizeof n))
		log_debug("%s: set the ACK timeout: %m", v->peer);
}

void verbs_set_rnr_timer(struct verbs *v)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = MIN_RNR_TIMER};

	/* rxe's senders never repeat: verbs_rnr_retry_count(). */
	if (v->adapter.kind == ADAPTER_IWARP || v->adapter.rxe)
		return;
	errno = abs(ibv_modify_qp(v->id->qp, &attr, IBV_QP_MIN_RNR_TIMER));
	if (errno)
		log_debug("%s: set the RNR timer: %m", v->peer);
}

/*
 * Before the route is resolved: for RoCE, the kernel puts the octet into the path record, and the
 * request carries it to the other end's queue pair; for InfiniBand over IPv4 it is the QoS class of
 * the path query (cma.c, cma_resolve_iboe_route() and cma_query_ib_route()). iWARP takes it from
 * the id that connects or listens (cma_connect_iw(), cma_iw_listen()).
 */
int verbs_set_tos(struct rdma_cm_id *id, unsigned tos)
{
	uint8_t octet = (uint8_t)(tos - 1);

	if (!tos)
		return 0;
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, sizeof octet);
}
