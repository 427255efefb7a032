/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what filter, listed and modes say, for test_select_model.py to compare with rsync.  On
 * stdin come cases, of strings that end with a NUL each; so does what is printed.  An empty string
 * follows each case and each answer.  A case is one of
 *
 *	filter		rules (a + or -, and a pattern), "", and paths, each behind a d or f for
 *			directory or file: the paths that are taken
 *	listed|recursive	names of a list, "", and paths likewise
 *	modes TEXT	modes likewise ("d755"): what becomes of them
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "copy/attr/modes.h"
#include "copy/rules/filter.h"
#include "copy/rules/files_from.h"

/* False at the end of a list, too. */
static bool next(char **word, size_t *room)
{
	return getdelim(word, room, '\0', stdin) > 0 && **word;
}

/* An excluded directory hides its entries. */
static bool hidden(const struct filter *f, char *path, bool dir)
{
	for (char *p = path; (p = strchr(p, '/')); p++) {
		bool excluded;

		*p = '\0';
		excluded = filter_excludes(f, path, true);
		*p = '/';
		if (excluded)
			return true;
	}
	return filter_excludes(f, path, dir);
}

static int filter_dump(char **word, size_t *room)
{
	struct filter *f;

	if (filter_new(&f))
		return -1;
	while (next(word, room))
		if (filter_add(f, **word == '+', *word + 1))
			return -1;
	while (next(word, room))
		if (!hidden(f, *word + 1, **word == 'd'))
			fwrite(*word + 1, 1, strlen(*word + 1) + 1, stdout);
	filter_free(f);
	return 0;
}

static bool wanted(const struct files_from_node *n, const char *path, bool dir, bool recursive)
{
	char *copy = strdup(path), *left = copy;
	bool below = recursive && files_from_is_named(n);

	for (char *name; n && !below && (name = strsep(&left, "/"));) {
		n = files_from_child(n, name);
		below = n && recursive && files_from_is_named(n);
	}
	free(copy);
	return below || (n && (dir || files_from_is_named(n)));
}

static int listed_dump(char **word, size_t *room, bool recursive)
{
	struct files_from *l;

	if (files_from_new(&l))
		return -1;
	while (next(word, room))
		if (files_from_add(l, *word))
			return -1;
	while (next(word, room))
		if (wanted(files_from_top(l), *word + 1, **word == 'd', recursive))
			fwrite(*word + 1, 1, strlen(*word + 1) + 1, stdout);
	files_from_free(l);
	return 0;
}

static int modes_dump(char **word, size_t *room)
{
	struct modes *m;

	if (!next(word, room) || modes_parse(*word, &m))
		return -1;
	while (next(word, room)) {
		uint32_t mode = (uint32_t)strtoul(*word + 1, NULL, 8);

		printf("%o%c", modes_apply(m, mode, **word == 'd'), '\0');
	}
	modes_free(m);
	return 0;
}

static int dump_case(char **word, size_t *room)
{
	if (strcmp(*word, "filter") == 0)
		return filter_dump(word, room);
	if (strcmp(*word, "listed") == 0 || strcmp(*word, "recursive") == 0)
		return listed_dump(word, room, **word == 'r');
	if (strcmp(*word, "modes") == 0)
		return modes_dump(word, room);
	return fail("no case begins with %s", *word);
}

int main(void)
{
	char *word = NULL;
	size_t room = 0;
	int ret = 0;

	while (ret == 0 && next(&word, &room)) {
		ret = dump_case(&word, &room);
		putchar('\0');
	}
	free(word);
	if (ret)
		fprintf(stderr, "%s\n", failed()->text);
	return ret ? 1 : 0;
}
