/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/rule_list.h"

#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"
#include "cmd/cli/name_list.h"

enum { RULES_MOST = 1 << 16 };

struct pattern_adder {
	struct rule_list *to;
	bool include;
};

static int add_pattern(void *ctx, const char *text)
{
	const struct pattern_adder *a = ctx;
	struct rule_list *l = a->to;

	if (strlen(text) >= RULE_TEXT_MAX)
		return fail_as(OUT_USAGE, "pattern %.60s...: too long", text);
	if (l->count >= RULES_MOST)
		return fail_as(OUT_USAGE, "more than %d patterns are not supported", RULES_MOST);
	if (ARRAY_ROOM(l->of, l->count, l->room, 1))
		return fail_as(OUT_MEMORY, "store the patterns: %m");
	l->of[l->count] = (struct pattern_rule){.include = a->include, .pattern = strdup(text)};
	if (!l->of[l->count].pattern)
		return fail_as(OUT_MEMORY, "store the patterns: %m");
	l->count++;
	return 0;
}

static int add_pattern_file(const char *path, bool nul, struct pattern_adder *a)
{
	struct name_list *names;
	int rc;

	if (name_list_open(path, nul, &names))
		return -1;
	while ((rc = name_list_read(names, add_pattern, a)) > 0)
		continue;
	name_list_close(names);
	return rc;
}

int rule_list_read(const struct options *o, struct rule_list *l)
{
	for (unsigned i = 0; i < o->pattern_count; i++) {
		const struct option_pattern *r = &o->patterns[i];
		struct pattern_adder a = {.to = l, .include = r->include};

		if (r->from_file ? add_pattern_file(r->text, o->from0, &a)
				 : add_pattern(&a, r->text))
			return -1;
	}
	return 0;
}

void rule_list_free(struct rule_list *l)
{
	for (unsigned i = 0; i < l->count; i++)
		free(l->of[i].pattern);
	free(l->of);
	*l = (struct rule_list){0};
}
