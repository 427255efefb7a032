/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_TCP_TCP_IMPL_H
#define LANE_TCP_TCP_IMPL_H

/*
 * Shared by tcp.c (moves blocks over a stream socket) and tcp_connect.c (connects it).
 */

#include "lane/lane.h"
#include "lane/wire.h"

/* Makes a wire of a connected stream socket of any family. No block may be sent before both hellos
 * are exchanged. Owns fd, also on failure. */
int tcp_wire(struct lane *l, uint32_t epoch, int fd, struct wire **out);

#endif
