/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_MEMLOCK_H
#define LANE_MEMLOCK_H

/* Locked memory: how much of it a process may have, and lanes that fit into it. */

#include <stdbool.h>
#include <stdint.h>

/*
 * What one process may lock for lanes, in bytes: raises the soft limit to the hard one, UINT64_MAX
 * when unlimited.  (siw counts even with CAP_IPC_LOCK, so no exception for root.)
 */
uint64_t memlock_limit(void);
/*
 * Shrink lanes, then depth, then block size until lanes fit into `limit' bytes of pool and
 * locked rings: *lanes * (pool_bytes + 64 KiB).  False when even 1 lane of 4 x 16 KiB does not.
 */
bool lanes_fit(uint64_t limit, unsigned *lanes, uint32_t *depth, uint32_t *block_size);
/* Record that a lane's `need' bytes could not be locked, with the limit and the remedy. */
int fail_memlock(uint64_t need);
/* The same of another host. */
int fail_memlock_on(const char *host, uint64_t limit, uint64_t need);

#endif
