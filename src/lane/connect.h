/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_CONNECT_H
#define LANE_CONNECT_H

/*
 * How a lane gets a wire: it dials a listener, or takes a caller that a listener accepted, over TCP
 * (tcp_connect.h) or RDMA (verbs_connect.h).
 *
 * Both ends then exchange LANE_HELLO (head.h). The connecting end sends first: iWARP requires this,
 * and an accepting end sends nothing to a stranger. When a call returns 0, the wire provably ends
 * at the peer that has the session's secret, and is for this lane and epoch.
 *
 * The deadline (clock_ms) bounds every wait, and lane_abort() ends it. The time in which memory is
 * registered does not count: gigabytes take seconds, at both ends. lane_stopped_ms() has its sum.
 */

#include "base/address.h"
#include "lane/head.h"
#include "lane/lane.h"

#endif
