/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_WIPE_H
#define BASE_WIPE_H

/* Clears what calls that have returned left on this thread's stack, and the registers that the
 * dynamic linker saved there: 64 KiB below the caller. Call it after passing or decoding
 * secrets. */
void wipe_stack(void);

#endif
