/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of verbs_connect.c and verbs_listen.c for a build without rdma-core. */

#include <stdio.h>
#include "base/fail.h"
#include "host/adapter.h"
#include "lane/connect.h"
#include "lane/verbs/verbs_connect.h"
#include "lane/verbs/verbs_port.h"

static const char none[] = "this build has no RDMA support";

bool verbs_built(void)
{
	return false;
}

bool verbs_present(char *why, size_t size)
{
	snprintf(why, size, "%s", none);
	return false;
}

bool verbs_behind(const union address *addr)
{
	(void)addr;
	return false;
}

void verbs_load(void)
{
}

void verbs_reserve(const union address *at, unsigned count, unsigned lanes)
{
	(void)at, (void)count, (void)lanes;
}

void verbs_release(void)
{
}

int verbs_port_query(const struct adapter *a, struct adapter_verbs *out)
{
	(void)a, (void)out;
	return fail_as(OUT_TRANSPORT, "%s", none);
}

int verbs_dial(struct lane *l, uint32_t epoch, const struct lane_key *key,
	       const union address *from, const union address *to, struct verbs **prepared,
	       uint64_t began_ms, uint64_t deadline_ms, struct wire **out)
{
	(void)l, (void)epoch, (void)key, (void)from, (void)to, (void)prepared, (void)began_ms;
	(void)deadline_ms, (void)out;
	return fail_as(OUT_TRANSPORT, "%s", none);
}

int verbs_knock(struct lane *l, const struct lane_key *key, const union address *from,
		const union address *to, uint64_t deadline_ms)
{
	(void)l, (void)key, (void)from, (void)to, (void)deadline_ms;
	return fail_as(OUT_TRANSPORT, "%s", none);
}

int verbs_listen(const union address *addr, unsigned lo, unsigned hi, unsigned tos, unsigned *port,
		 struct verbs_listener **out)
{
	(void)addr, (void)lo, (void)hi, (void)tos, (void)port, (void)out;
	return fail_as(OUT_TRANSPORT, "%s", none);
}

/* Without listeners and callers, none of the following functions is ever called. */

void verbs_unlisten(struct verbs_listener *v)
{
	(void)v;
}

int verbs_listener_fd(const struct verbs_listener *v)
{
	(void)v;
	return -1;
}

bool verbs_listener_is_lost(const struct verbs_listener *v)
{
	(void)v;
	return false;
}

bool verbs_relisten(struct verbs_listener *v)
{
	(void)v;
	return false;
}

const struct lane_private *verbs_caller_request(const struct verbs_caller *c)
{
	(void)c;
	return NULL;
}

int verbs_next_caller(struct verbs_listener *v, struct verbs_caller **out)
{
	(void)v;
	*out = NULL;
	return fail_as(OUT_TRANSPORT, "%s", none);
}

void verbs_refuse(struct verbs_caller *c)
{
	(void)c;
}

int verbs_prepare(struct lane *l, const union address *at, struct verbs **out)
{
	(void)l, (void)at, (void)out;
	return fail_as(OUT_TRANSPORT, "%s", none);
}

void verbs_unprepare(struct verbs *v)
{
	(void)v;
}

int verbs_take(struct lane *l, uint32_t epoch, const struct lane_key *key, struct verbs_caller *c,
	       struct verbs **prepared, uint64_t deadline_ms, struct wire **out)
{
	(void)l, (void)epoch, (void)key, (void)c, (void)prepared, (void)deadline_ms, (void)out;
	return fail_as(OUT_TRANSPORT, "%s", none);
}
