/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

/*
 * Guards memory that holds secrets: its pages are locked, so that they never reach swap, and left
 * out of core files. Where the system does not permit that (RLIMIT_MEMLOCK), nothing happens.
 *
 * Pages stay guarded until they are unmapped, because a page may hold several secrets. Locks are
 * not inherited: a forked process wipes or guards its parent's secrets anew.
 */

#include <stddef.h>

void secret_guard(const void *at, size_t size);

#endif
