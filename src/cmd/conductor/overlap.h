/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_OVERLAP_H
#define CMD_CONDUCTOR_OVERLAP_H

/* Sources that are, hold or collide with what they would be copied to, as far as can be seen from
 * here: within this host, and by their names on another. */

#include "cmd/cli/options.h"
#include "cmd/cli/target.h"

/* How many hosts the sources are on; what is on one is copied in one session. */
unsigned overlap_count_hosts(const struct target *sources, unsigned count);
/* The last of o's operands is the target. 0, or -1 with a failure that names two of them. */
int overlap_check(const struct options *o, const struct target *sources, unsigned count,
		  const struct target *target);

#endif
