/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FUZZ_EXPECT_H
#define FUZZ_EXPECT_H

/* Ends a fuzz target that found a defect, regardless of NDEBUG. */

#include <stdbool.h>
#include <stdlib.h>
#include "base/fail.h"

static inline void expect(bool ok)
{
	if (!ok)
		abort();
}

/* The failure must have one of these two outcomes. */
static inline void expect_failure(enum outcome a, enum outcome b)
{
	expect(failed()->code == a || failed()->code == b);
}

#endif
