/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_MEMLOCK_H
#define LANE_MEMLOCK_H

/* Locked memory: how much a process may lock, and which lanes fit into it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The bytes that this process may lock for lanes; UINT64_MAX: unlimited. Removes the limit if that
 * is permitted (CAP_SYS_RESOURCE), else raises the soft limit to the hard limit. (siw counts locked
 * memory even with CAP_IPC_LOCK, so root is no exception.)
 */
uint64_t memlock_limit(void);
/*
 * Reduces lanes, then depth, then block size until the lanes fit into `limit' bytes of pool and
 * locked rings: *lanes * (pool_bytes + 64 KiB). Returns false if even 1 lane of 4 x 16 KiB does not
 * fit.
 */
bool lanes_fit(uint64_t limit, unsigned *lanes, uint32_t *depth, uint32_t *block_size);
/*
 * Whether the limit can be the reason why the adapter was refused memory of which this process then
 * had locked `total' bytes. The queues of some adapters count, too. The kernel does not apply the
 * limit to a process with CAP_IPC_LOCK (ib_umem_get()); siw does: always.
 */
bool memlock_explains(uint64_t total, bool always);
/* Fails because a lane's `need' bytes could not be locked; states the limit and the remedy. */
int fail_memlock(uint64_t need);
/* Formats the limit, what is needed, and the remedy, for a message. */
void memlock_describe_need(uint64_t need, char *to, size_t size);
/* The same failure on another host. */
int fail_memlock_on(const char *host, uint64_t limit, uint64_t need);

#endif
