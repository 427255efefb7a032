/* SPDX-License-Identifier: Apache-2.0 */

/* Properties of an adapter that only verbs report. */

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include "base/fail.h"
#include "host/adapter.h"
#include "lane/verbs/verbs_port.h"

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	bool found = false;

	for (struct ibv_device **d = all; d && *d && !found; d++) {
		found = strcmp(ibv_get_device_name(*d), name) == 0;
		errno = 0;
		if (found)
			ctx = ibv_open_device(*d);
	}
	if (!found)
		fail_as(OUT_TRANSPORT, "open %s with libibverbs: no such device", name);
	else if (!ctx)
		fail_as(OUT_TRANSPORT, "open %s with libibverbs: %s", name,
			errno ? strerror(errno) : "no reason given");
	if (all)
		ibv_free_device_list(all);
	return ctx;
}

int verbs_port_query(const struct adapter *a, struct adapter_verbs *out)
{
	struct ibv_context *ctx = open_device(a->device);
	struct ibv_port_attr port;
	int rc;

	if (!ctx)
		return -1;
	rc = ibv_query_port(ctx, (uint8_t)a->port, &port);
	ibv_close_device(ctx);
	if (rc)
		return fail_as(OUT_TRANSPORT, "query %s port %u: %s", a->device, a->port,
			       strerror(rc < 0 ? -rc : rc));
	/* enum ibv_mtu: IBV_MTU_256 is 1, and each next value is twice the size. */
	out->mtu = port.active_mtu ? 128u << port.active_mtu : 0;
	out->mtu_most = port.max_mtu ? 128u << port.max_mtu : 0;
	return 0;
}
