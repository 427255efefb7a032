/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FUZZ_EXPECT_H
#define FUZZ_EXPECT_H

/* What a fuzz target finds wrong ends it, whatever NDEBUG says. */

#include <stdbool.h>
#include <stdlib.h>
#include "base/fail.h"

static inline void expect(bool ok)
{
	if (!ok)
		abort();
}

/* The failure is one of these two. */
static inline void expect_failure(enum outcome a, enum outcome b)
{
	expect(failed()->code == a || failed()->code == b);
}

#endif
