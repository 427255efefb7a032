/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_CONNECT_EARLY_H
#define SESSION_CONNECT_EARLY_H

/*
 * RDMA in a process that will be confined to a directory, where there is neither /sys nor /dev. In
 * this order, before other threads run:
 *
 *	early_read()	while it may read /sys and the files of libraries, and raise its limits
 *	early_open()	once its credentials are final, while it may open /dev/infiniband: the
 *			kernel rejects requests of a process whose credentials have changed since
 *
 * Then sessions of this process can accept RDMA lanes, at most EARLY_LANES.
 */

#include <stdbool.h>

enum { EARLY_LANES = 16 };

/* Returns false if this host has no RDMA that could be used; then early_open() is not needed. */
bool early_read(void);
/* family: as in struct offer_rules. What fails is no failure here: sessions then use TCP, and know
 * why. */
void early_open(int family);
/* Closes what sessions have not used. */
void early_close(void);

#endif
