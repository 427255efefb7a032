/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/orders.h"

#include <string.h>
#include "base/fail.h"
#include "session/key.h"

static uint32_t start_flags(const struct orders *d, int i)
{
	const struct options *o = d->job->o;
	bool stdio = i == LINK_SOURCE ? d->job->source_stdio : d->job->sink_stdio;
	const struct {
		bool set;
		uint32_t flag;
	} flags[] = {
		{d->listener == i, START_LISTENS},
		{o->preserve, START_PRESERVE},
		{o->mkpath, START_MKPATH},
		{o->remove_source, START_REMOVE_SOURCE},
		{o->fsync || o->remove_source, START_FSYNC},
		{o->inplace, START_INPLACE},
		{o->no_sparse, START_NO_SPARSE},
		{o->sparse, START_SPARSE},
		{o->no_target_dir, START_NO_TARGET_DIR},
		{d->job->many, START_MANY},
		{stdio, START_STDIO},
		{o->quiet, START_QUIET},
		{o->family == 4, START_IPV4},
		{o->family == 6, START_IPV6},
		{true, START_PROGRESS},
		{d->links[i].far, START_FAR},
	};
	uint32_t all = 0;

	for (unsigned k = 0; k < sizeof flags / sizeof *flags; k++)
		all |= flags[k].set ? flags[k].flag : 0;
	return all;
}

static int send_start(const struct orders *d, int i, const uint8_t secret[static LANE_SECRET])
{
	const struct options *o = d->job->o;
	struct link *l = &d->links[i];
	static uint8_t body[FRAME_BODY_MAX];
	struct writer w = writer_of(body, sizeof body);
	struct msg_start m = {
		.version = PROTOCOL_VERSION,
		.role = i == LINK_SOURCE ? ROLE_SOURCE : ROLE_SINK,
		.want = d->over_ssh ? TRANSPORT_SSH : (uint8_t)o->want,
		.verbose = o->verbose > 3 ? 3 : (uint8_t)o->verbose,
		.flags = start_flags(d, i),
		.lanes = (uint16_t)o->lanes,
		.depth = (uint16_t)o->depth,
		.block_size = (uint32_t)o->block_size,
		.memory = o->memory,
		.bwlimit = o->bwlimit,
		.timeout_ms = (uint32_t)o->timeout_ms,
		.connect_timeout_ms = (uint32_t)o->connect_timeout_ms,
		.port_lo = (uint16_t)o->port_lo,
		.port_hi = (uint16_t)o->port_hi,
	};
	int rc;

	memcpy(m.secret, secret, sizeof m.secret);
	snprintf(m.host, sizeof m.host, "%s", l->name);
	snprintf(m.peer, sizeof m.peer, "%s", d->links[1 - i].name);
	if (d->listener == i)
		snprintf(m.address, sizeof m.address, "%s", o->address);
	if (i == LINK_SINK)
		snprintf(m.target, sizeof m.target, "%s", d->job->target);
	msg_start_encode(&w, &m);
	rc = w.full ? fail_as(OUT_USAGE, "%s: the name is too long", d->job->target)
		    : link_send(l, MSG_START, body, w.used);
	explicit_bzero(&m, sizeof m);
	explicit_bzero(body, sizeof body);
	return rc;
}

static int send_wants(const struct orders *d, int i)
{
	static uint8_t body[FRAME_BODY_MAX];

	for (unsigned k = 0; k < d->job->count; k++) {
		struct writer w = writer_of(body, sizeof body);
		struct msg_want m;

		if ((size_t)snprintf(m.name, sizeof m.name, "%s", d->job->names[k]) >=
		    sizeof m.name)
			return fail_as(OUT_USAGE, "%s: the name is too long", d->job->names[k]);
		msg_want_encode(&w, &m);
		if (link_send(&d->links[i], MSG_WANT, body, w.used))
			return -1;
	}
	return link_send(&d->links[i], MSG_GO, NULL, 0);
}

int give_orders(const struct orders *d)
{
	uint8_t secret[LANE_SECRET];
	int rc = random_bytes(secret, sizeof secret);

	for (int i = 0; i < 2 && rc == 0; i++) {
		rc = send_start(d, i, secret);
		if (!rc)
			rc = send_wants(d, i);
	}
	explicit_bzero(secret, sizeof secret);
	return rc;
}
