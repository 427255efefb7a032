/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdint.h>

/* Bytes of this host's memory; 0: unknown. */
uint64_t memory_bytes(void);

#endif
