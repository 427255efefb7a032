/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_RECORD_H
#define SIMVERBS_RECORD_H

/*
 * What a test wants to know of connections: if SIMVERBS_RECORD names a file, each end of each
 * connection appends a line "FROM TO TOS DATA" to it: the addresses of this end and its peer, the
 * type of service of its packets, and the private data of the request in hexadecimal digits.
 */

#include <rdma/rdma_cma.h>
#include "message.h"

void record_connection(struct rdma_cm_id *id, unsigned tos, const struct message_connect *request);

#endif
