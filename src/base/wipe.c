/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wipe.h"

#include <stdint.h>
#include <string.h>

enum { STACK_WIPED = 64 << 10 };

__attribute__((noinline)) void wipe_stack(void)
{
	uint8_t below[STACK_WIPED];

	explicit_bzero(below, sizeof below);
}
