/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/rules/rules.h"

#include <xxhash.h>

#define RULES_BIT(field, bit) | (r->field ? START_FLAG(bit) : 0)
#define RULES_SET(field, bit) r->field = (flags & START_FLAG(bit)) != 0;

uint64_t rules_flags(const struct rules *r)
{
	return 0 START_RULES(RULES_BIT);
}

void rules_set_flags(struct rules *r, uint64_t flags){START_RULES(RULES_SET)}

uint64_t rules_selection(const struct rules *r)
{
	const struct rules flags = {
		.recursive = r->recursive,
		.copy_links = r->copy_links,
		.relative = r->relative,
		.one_file_system = r->one_file_system,
		.devices = r->devices,
		.update = r->update,
		.ignore_existing = r->ignore_existing,
		.existing = r->existing,
	};
	const uint64_t all[] = {
		rules_flags(&flags),
		r->min_size,
		r->max_size,
		filter_hash(r->filter),
	};

	return XXH3_64bits(all, sizeof all);
}
