/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_VERBS_VERBS_PORT_H
#define LANE_VERBS_VERBS_PORT_H

/* What verbs report of a port, and sysfs does not. */

#include "host/adapter.h"

/* -1 with a failure where verbs can't be asked, as in a build without them. */
struct adapter_verbs {
	unsigned mtu, mtu_most; /* bytes of data in a packet; 0: not told */
};
int verbs_port_query(const struct adapter *a, struct adapter_verbs *out);

#endif
