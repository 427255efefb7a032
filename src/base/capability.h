/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CAPABILITY_H
#define BASE_CAPABILITY_H

/*
 * Does this thread have the capability (CAP_... of linux/capability.h, below 32) in effect, in its
 * own user namespace?  False if the kernel does not tell.
 */

#include <stdbool.h>

bool capability_has(unsigned capability);

#endif
