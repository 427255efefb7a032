/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LANE_MEMLOCK_H
#define LANE_MEMLOCK_H

/* Locked memory: how much a process may lock, and which lanes fit into it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LANE_RINGS = 64 << 10 }; /* bytes that a lane locks besides its pool */

/*
 * The bytes that this process may lock for lanes; UINT64_MAX: unlimited. Removes the limit if that
 * is permitted (CAP_SYS_RESOURCE), else raises the soft limit to the hard limit. With CAP_IPC_LOCK
 * the limit counts only if this host has a siw, the one driver that applies it all the same.
 */
uint64_t memlock_limit(void);
/* The same; root replaces /sys in tests. */
uint64_t memlock_limit_at(const char *root);
/* The bytes that a lane locks. */
uint64_t lane_bytes(uint32_t depth, uint32_t block_size);
/* The bytes of the smallest lane to which lanes_fit() reduces these sizes. */
uint64_t lane_bytes_least(uint32_t depth, uint32_t block_size);
/*
 * Reduces lanes, then depth, then block size until the lanes fit into `limit' bytes of pool and
 * locked rings: *lanes * lane_bytes(). Returns false if even 1 lane of 4 x 16 KiB does not
 * fit.
 */
bool lanes_fit(uint64_t limit, unsigned *lanes, uint32_t *depth, uint32_t *block_size);
/*
 * Whether the limit can be the reason why the adapter was refused memory of which this process then
 * had locked `total' bytes. The queues of some adapters count, too. The kernel does not apply the
 * limit to a process with CAP_IPC_LOCK (ib_umem_get() of Linux's ib_core); siw does: always.
 */
bool memlock_explains(uint64_t total, bool always);
/* Fails because a lane's `need' bytes could not be locked, beside `locked' bytes of other lanes;
 * states the limit and the remedy. */
int fail_memlock(uint64_t locked, uint64_t need);
/* Formats the limit, what is needed, and the remedy, for a message. */
void memlock_describe_need(uint64_t need, char *to, size_t size);
/* The same failure on another host. */
int fail_memlock_on(const char *host, uint64_t limit, uint64_t need);

#endif
