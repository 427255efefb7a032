/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what filter, listed and modes say, for test_select_model.py to compare with
 * rsync.  What comes in on stdin ends with a NUL each; so does what is printed.
 *
 *	select_dump filter		rules (a + or -, and a pattern), "", and paths, each behind
 *					a d or f for directory or file: the paths that are taken
 *	select_dump listed|recursive	names of a list, "", and paths likewise
 *	select_dump modes TEXT		modes likewise ("d755"): what becomes of them
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "copy/attr/modes.h"
#include "copy/rules/filter.h"
#include "copy/rules/files_from.h"

static bool next(char **word, size_t *room)
{
	return getdelim(word, room, '\0', stdin) > 0;
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
	while (next(word, room) && **word)
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
	while (next(word, room) && **word)
		if (files_from_add(l, *word))
			return -1;
	while (next(word, room))
		if (wanted(files_from_top(l), *word + 1, **word == 'd', recursive))
			fwrite(*word + 1, 1, strlen(*word + 1) + 1, stdout);
	files_from_free(l);
	return 0;
}

static int modes_dump(char **word, size_t *room, const char *text)
{
	struct modes *m;

	if (modes_parse(text, &m))
		return -1;
	while (next(word, room)) {
		uint32_t mode = (uint32_t)strtoul(*word + 1, NULL, 8);

		printf("%o%c", modes_apply(m, mode, **word == 'd'), '\0');
	}
	modes_free(m);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	char *word = NULL;
	size_t room = 0;
	int ret = -1;

	if (strcmp(what, "filter") == 0)
		ret = filter_dump(&word, &room);
	else if (strcmp(what, "listed") == 0 || strcmp(what, "recursive") == 0)
		ret = listed_dump(&word, &room, *what == 'r');
	else if (strcmp(what, "modes") == 0 && argc == 3)
		ret = modes_dump(&word, &room, argv[2]);
	else
		fail("select_dump filter|listed|recursive|modes TEXT");
	free(word);
	if (ret)
		fprintf(stderr, "%s\n", failed()->text);
	return ret ? 1 : 0;
}
