/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_TRANSPORTS_H
#define CMD_SERVE_TRANSPORTS_H

#include "protocol/message.h"

/* How sessions of a rdcpd move data. */
struct transports {
	enum transport want; /* AUTO, RDMA or TCP */
	unsigned port_lo, port_hi; /* for RDMA; 0: any */
	unsigned tos; /* base/tos.h */
};

#endif
