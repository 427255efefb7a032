/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_REFUSALS_H
#define CMD_END_REFUSALS_H

/* Options of rdcp that the clients of a module may not use: "refuse options". */

#include <stdint.h>
#include "cmd/end/orders.h"

/* Takes names without letters or arguments, with or without "--", separated by blanks or commas.
 * Returns 0, or -1 with a failure (OUT_USAGE). */
int refusals_parse(const char *text, uint64_t *to);
/* The first refused option, as "--delete", that these orders have; NULL: none. */
const char *refusals_find(uint64_t refused, const struct orders *o);

#endif
