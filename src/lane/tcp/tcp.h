/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_TCP_TCP_H
#define LANE_TCP_TCP_H

/*
 * Between tcp.c (moving blocks over a stream socket) and tcp_connect.c (coming by one).
 */

#include "lane/lane.h"
#include "lane/wire.h"

/* The wire over a connected stream socket, of any family; no block may be sent before both hellos.
 * Owns fd, also on failure. */
int tcp_wire(struct lane *l, uint32_t epoch, int fd, struct wire **out);

#endif
