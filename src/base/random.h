/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>

/* Unpredictable bytes from the kernel. Waits until the kernel has them; -1 with a failure and
 * errno. */
int random_bytes(void *to, size_t len);

#endif
