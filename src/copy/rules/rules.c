/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/rules/rules.h"

#define RULES_BIT(field, bit) | (r->field ? START_FLAG(bit) : 0)
#define RULES_SET(field, bit) r->field = (flags & START_FLAG(bit)) != 0;

uint64_t rules_flags(const struct rules *r)
{
	return 0 START_RULES(RULES_BIT);
}

void rules_set_flags(struct rules *r, uint64_t flags)
{
	START_RULES(RULES_SET)
}
