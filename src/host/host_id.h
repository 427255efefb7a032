/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_HOST_ID_H
#define HOST_HOST_ID_H

#include <stddef.h>
#include <stdint.h>

/* Both remember what they found the first time: a process that will see no /proc any more calls
 * host_id() before, for both.
 *
 * Equal in two processes on one host and network namespace; reveals nothing else about the host. */
uint64_t host_id(void);
/* Identifies the running kernel: size bytes, at most 37. Returns 0, or -1 if unknown. */
int boot_id(char *to, size_t size);

#endif
