/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that is registered before the wire that will use it exists. A lane holds it as a wire that
 * has an id of the device, so that the device stays open, and no queues. */

#include <string.h>
#include "lane/verbs/verbs_impl.h"

void verbs_drop_prepared(struct verbs **prepared)
{
	if (prepared) {
		verbs_free(*prepared);
		*prepared = NULL;
	}
}

void verbs_take_prepared(struct verbs *v, struct verbs **prepared)
{
	if (!prepared || !*prepared)
		return;
	verbs_take_memory(v, *prepared);
	if (!v->pool_mr)
		verbs_drop_prepared(prepared);
}

/* Makes a wire with an id of the device at a local address, and nothing else. The id keeps the
 * device open. */
static int open_device_of(struct lane *l, const union address *at, struct verbs **out)
{
	union address a = address_with_port(at, 0);
	struct verbs *v;

	if (verbs_new(l, 0, &v))
		return -1;
	address_text(at, v->peer, sizeof v->peer);
	if (!verbs_open_id(v) && !rdma_bind_addr(v->id, &a.sa) && v->id->verbs) {
		*out = v;
		return 0;
	}
	if (v->id)
		fail_as(OUT_TRANSPORT, "no RDMA device has the address %s", v->peer);
	verbs_free(v);
	return -1;
}

static void local_address(const struct verbs *v, union address *to)
{
	const struct sockaddr *sa = rdma_get_local_addr(v->id);

	memset(to, 0, sizeof *to);
	memcpy(to, sa, sa->sa_family == AF_INET6 ? sizeof to->in6 : sizeof to->in4);
}

void verbs_keep_memory(struct verbs *v, struct verbs **prepared)
{
	struct failure f = *failed();
	union address at;

	if (!prepared)
		return;
	if (v->pool_mr && !v->request_pending && !(v->wire.exposed && v->hellos > 0)) {
		local_address(v, &at);
		if (*prepared || !open_device_of(v->lane, &at, prepared))
			verbs_take_memory(*prepared, v);
	}
	if (*prepared && !(*prepared)->pool_mr)
		verbs_drop_prepared(prepared);
	fail_again(&f);
}

int verbs_prepare(struct lane *l, const union address *at, struct verbs **out)
{
	struct verbs *v;

	if (open_device_of(l, at, &v))
		return -1;
	if (verbs_examine(v) || verbs_equip_memory(v)) {
		verbs_free(v);
		return -1;
	}
	*out = v;
	return 0;
}

void verbs_unprepare(struct verbs *v)
{
	verbs_free(v);
}
