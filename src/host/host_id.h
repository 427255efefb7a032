/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_HOST_ID_H
#define HOST_HOST_ID_H

#include <stddef.h>
#include <stdint.h>

/* Equal in two processes of one host and network namespace, and reveals nothing else of it. */
uint64_t host_id(void);
/* Of the running kernel: size bytes of it.  0, or -1: it is not known. */
int boot_id(char *to, size_t size);

#endif
