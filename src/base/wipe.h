/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_WIPE_H
#define BASE_WIPE_H

/* Clear what calls that have returned left on this thread's stack, and what the dynamic linker
 * saved there of registers: 64 KiB below the caller.  For secrets that were passed or decoded. */
void wipe_stack(void);

#endif
