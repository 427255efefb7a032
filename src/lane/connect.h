/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_CONNECT_H
#define LANE_CONNECT_H

/*
 * How a lane gets a wire: dial a listener, or take a caller that a listener found, over TCP
 * (tcp_connect.h) or RDMA (verbs_connect.h).
 *
 * Both ends then exchange LANE_HELLO (head.h): the connecting end first (iWARP wants it so,
 * and an accepting end says nothing to a stranger).  After 0 the wire is proven to end at
 * the peer that has the session's secret, for this lane and epoch.
 *
 * Every wait is bounded by the deadline (clock_ms) and ended by lane_abort().
 */

#include "base/address.h"
#include "lane/head.h"
#include "lane/lane.h"

#endif
