/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CONDUCTOR_OVERLAP_H
#define CMD_CONDUCTOR_OVERLAP_H

/* Detects sources that are, contain or collide with their own targets, as far as the conductor can:
 * by inode on this host, by name on another. */

#include "cmd/cli/operand.h"
#include "cmd/cli/options.h"

/* The number of hosts that the sources are on. All sources on one host are copied in one
 * session. */
unsigned overlap_count_hosts(const struct operand *sources, unsigned count);
/* Is sources[i] the first one on its host? */
bool overlap_first_of_host(const struct operand *sources, unsigned i);
/* The last of o's operands is the target. Returns 0, or -1 with a failure that names two
 * operands. */
int overlap_check(const struct options *o, const struct operand *sources, unsigned count,
		  const struct operand *target);

#endif
