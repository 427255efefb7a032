/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns, listed names and --chmod. An input is lines. The first letter is the kind of a line: +
 * or
 * - a pattern, > a path to match, = a listed name, m changes of modes.
 */
#include <stdint.h>
#include <string.h>
#include "copy/attr/modes.h"
#include "copy/rules/filter.h"
#include "copy/rules/files_from.h"
#include "expect.h"
#include "protocol/message.h"

enum { INPUT_MAX = 16 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct rules_under_test {
	struct filter *filter;
	struct files_from *listed;
};

static void add_pattern(struct rules_under_test *r, bool include, const char *text)
{
	if (filter_add(r->filter, include, text))
		expect(failed()->code == OUT_USAGE);
}

/* Matches a path twice, with the same result. */
static void match(struct rules_under_test *r, char *path)
{
	bool dir = filter_excludes(r->filter, path, true);

	expect(filter_excludes(r->filter, path, true) == dir);
	filter_excludes(r->filter, path, false);
	files_from_child(files_from_top(r->listed), path);
	expect(!filter_excludes(NULL, path, dir));
}

/* A listed name must be found by its components. */
static void find_listed(const struct files_from *l, char *name)
{
	const struct files_from_node *n = files_from_top(l);
	char *rest = name, *part;

	while ((part = strsep(&rest, "/"))) {
		if (!*part || strcmp(part, ".") == 0)
			continue;
		n = files_from_child(n, part);
		expect(n);
	}
	expect(files_from_is_named(n));
}

static void add_listed(struct rules_under_test *r, char *name)
{
	if (files_from_add(r->listed, name))
		expect(failed()->code == OUT_USAGE);
	else if (strlen(name) & 1) /* find_listed() seals the list, and later names follow */
		find_listed(r->listed, name);
}

/* Children must be in order, and each must be found. */
static void walk_listed(const struct files_from_node *dir)
{
	const struct files_from_node *n;
	const char *name, *before = NULL;
	size_t at = 0;

	while ((n = files_from_next(dir, &at, &name))) {
		expect(*name && !strchr(name, '/') && (!before || strcmp(before, name) < 0));
		expect(files_from_child(dir, name) == n);
		before = name;
		walk_listed(n);
	}
}

static void change_modes(const char *text)
{
	struct modes *m;

	if (modes_parse(text, &m)) {
		expect(failed()->code == OUT_USAGE);
		return;
	}
	for (unsigned mode = 0; mode <= 07777; mode += 0111) {
		expect(modes_apply(m, mode, true) <= 07777);
		expect(modes_apply(m, mode, false) <= 07777);
	}
	modes_free(m);
}

static void use_line(struct rules_under_test *r, char *line)
{
	switch (*line) {
	case '+':
	case '-':
		add_pattern(r, *line == '+', line + 1);
		break;
	case '>':
		match(r, line + 1);
		break;
	case '=':
		add_listed(r, line + 1);
		break;
	case 'm':
		change_modes(line + 1);
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[INPUT_MAX + 1];
	struct rules_under_test r = {.filter = NULL};
	char *rest = text, *line;

	if (size > INPUT_MAX)
		return -1;
	memcpy(text, data, size);
	text[size] = '\0';
	expect(filter_new(&r.filter) == 0 && files_from_new(&r.listed) == 0);
	while ((line = strsep(&rest, "\n")))
		use_line(&r, line);
	walk_listed(files_from_top(r.listed));
	filter_free(r.filter);
	files_from_free(r.listed);
	return 0;
}
