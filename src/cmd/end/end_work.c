/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/end_work.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"

static int pass_frame_to_copy(void *ctx, const struct frame *f)
{
	struct end_work *w = ctx;

	w->frames++;
	return copy_on_frame(w->copy, f);
}

static void pass_failure_to_copy(void *ctx)
{
	struct end_work *w = ctx;

	if (!atomic_load(&w->opened))
		return;
	copy_on_fail(w->copy);
	watch_failed();
}

void end_work_fill_session(struct end_work *w, struct session_opts *so)
{
	const struct msg_start *m = &w->orders.m;

	*so = (struct session_opts){
		.role = m->role,
		.want = m->want,
		.listens = orders_have(&w->orders, START_LISTENS),
		.lanes = m->lanes,
		.depth = m->depth,
		.block_size = m->block_size,
		.memory = m->memory,
		.rdma_op = m->rdma_op,
		.rails = m->rails,
		.encrypt = m->encrypt,
		.compress = make_compress_wish((unsigned)(m->flags >> START_COMPRESS_SHIFT)),
		.tos = m->tos,
		.unchecked = orders_unchecked(&w->orders),
		/* A measurement is of one transport. */
		.keeps_transport = orders_have(&w->orders, START_MEMORY) ||
				   orders_have(&w->orders, START_SCRATCH),
		.bwlimit = m->bwlimit,
		.timeout_ms = (int)m->timeout_ms,
		.connect_timeout_ms = (int)m->connect_timeout_ms,
		.port_lo = m->port_lo,
		.port_hi = m->port_hi,
		.family = orders_have(&w->orders, START_IPV4)   ? AF_INET
			  : orders_have(&w->orders, START_IPV6) ? AF_INET6
								: 0,
		.on_frame = pass_frame_to_copy,
		.on_fail = pass_failure_to_copy,
		.ctx = w,
	};

	memcpy(so->secret, m->secret, sizeof so->secret);
	memcpy(so->host, m->host, sizeof so->host);
	memcpy(so->peer, m->peer, sizeof so->peer);
	memcpy(so->address, m->address, sizeof so->address);
}

int end_work_begin(struct end_work *w)
{
	bool source = w->orders.m.role == ROLE_SOURCE;

	return copy_new(source ? &source_role : &sink_role, &w->copy);
}

void end_work_fill_verdict(struct end_work *w)
{
	struct msg_verdict *v = &w->verdict;

	v->total = w->result.total;
	v->lanes = (uint16_t)session_lanes(w->session);
	v->transport = (uint8_t)session_transport(w->session, v->how, sizeof v->how, v->why,
						  sizeof v->why);
	v->encrypted = (uint8_t)session_encrypted(w->session, &v->cipher);
	v->times = w->result.times;
	v->counts = w->result.counts;
	if (w->tally.first_ns)
		v->ns = clock_ns() - w->tally.first_ns;
	if (orders_have(&w->orders, START_MEMORY))
		v->total.bytes = w->tally.bytes - w->tally.first_bytes;
}

void end_work_failed_at(const struct end_work *w, struct failure *f, char host[static HOST_MAX])
{
	host[0] = '\0';
	if (w->session && !session_failed(w->session, f, host) && w->result.at_peer)
		snprintf(host, HOST_MAX, "%s", session_peer(w->session)->host);
}
