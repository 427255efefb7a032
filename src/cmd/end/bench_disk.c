/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/bench_disk.h"

#include "base/fail.h"
#include "copy/measure/probe.h"

int bench_disk_open(const struct orders *e, const struct stopper *stopper, struct scratch *s)
{
	const struct msg_start *m = &e->m;
	bool expand = orders_have(e, START_FAR);

	*s = (struct scratch){.fd = -1};
	if (!orders_have(e, START_SCRATCH) && !orders_have(e, START_PROBE))
		return 0;
	/* While the other end's disk is probed, this end is idle. */
	if (orders_have(e, START_PROBE) &&
	    (m->role == ROLE_SOURCE ? e->want_count == 0 : m->target[0] == '\0'))
		return 0;
	if (m->role == ROLE_SINK)
		return scratch_target(m->target, expand, m->memory_bytes, s);
	if (e->want_count != 1)
		return fail_as(OUT_PROTOCOL, "expected one file to measure, got %u", e->want_count);
	return scratch_source(e->wants[0], expand, m->memory_bytes, stopper, s);
}

struct stream bench_disk_stream(const struct scratch *s)
{
	return (struct stream){.fd = s->fd, .name = s->name, .most = s->size};
}

int bench_disk_probe(const struct orders *e, const struct scratch *s, struct tally *t,
		     void (*tick)(void *ctx), void *ctx)
{
	const struct msg_start *m = &e->m;
	struct probe_opts o = {
		.role = m->role,
		.file = s,
		.lanes = m->lanes,
		.depth = m->depth,
		.block_size = m->block_size,
		.direct = m->direct,
		.fsync = e->rules.fsync,
		.tick = tick,
		.ctx = ctx,
	};

	return s->fd < 0 ? 0 : probe_run(&o, t);
}
