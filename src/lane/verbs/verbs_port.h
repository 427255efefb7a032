/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_VERBS_VERBS_PORT_H
#define LANE_VERBS_VERBS_PORT_H

/* Properties of a port that verbs report and sysfs does not. */

#include "host/adapter.h"

/* Fails with -1 if verbs can't be asked, for example in a build without rdma-core. */
struct adapter_verbs {
	unsigned mtu, mtu_most; /* data bytes per packet, active and largest; 0: unknown */
};
int verbs_port_query(const struct adapter *a, struct adapter_verbs *out);

#endif
