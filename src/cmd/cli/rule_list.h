/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_RULE_LIST_H
#define CMD_CLI_RULE_LIST_H

/*
 * The patterns of --include and --exclude in the order in which they apply, with those from files
 * in their place, as the user wrote them (filter.h interprets a "+ " before one).
 */

#include <stddef.h>
#include "cmd/cli/options.h"

struct pattern_rule {
	bool include;
	char *pattern;
};
struct rule_list {
	struct pattern_rule *of;
	unsigned count;
	size_t room;
};

/* Reads the files, and waits for stdin. */
int rule_list_read(const struct options *o, struct rule_list *l);
void rule_list_free(struct rule_list *l);

#endif
