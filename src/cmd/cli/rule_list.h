/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_RULE_LIST_H
#define CMD_CLI_RULE_LIST_H

/*
 * The patterns of --include and --exclude in the order in which they count, those of files among
 * them, as the user wrote them (filter.h knows what a "+ " before one means).
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

/* Reads files, and waits for stdin. */
int rule_list_read(const struct options *o, struct rule_list *l);
void rule_list_free(struct rule_list *l);

#endif
