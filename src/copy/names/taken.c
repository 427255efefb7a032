/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/names/taken.h"

#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"

enum { BYTES_MAX = 64 << 20 /* of memory, because a peer sends the names */ };

int taken_add(struct taken *t, const char *name)
{
	/* Each lane that stores a piece of a file adds its name. */
	if (t->count > 0 && strcmp(t->names[t->count - 1], name) == 0)
		return 0;
	t->bytes += strlen(name) + 1 + sizeof *t->names;
	if (t->bytes > BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "names in the target need more than %d MiB of memory",
			       BYTES_MAX >> 20);
	if (ARRAY_ROOM(t->names, t->count, t->room, 1) || !(t->names[t->count] = strdup(name)))
		return fail_as(OUT_MEMORY, "record the name %s in the target: %m", name);
	t->count++;
	return 0;
}

static int compare_taken(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void taken_sort(struct taken *t)
{
	size_t n = 0;

	if (t->count > 0)
		qsort(t->names, t->count, sizeof *t->names, compare_taken);
	for (size_t i = 0; i < t->count; i++) {
		if (n == 0 || strcmp(t->names[n - 1], t->names[i]) != 0)
			t->names[n++] = t->names[i];
		else
			free(t->names[i]);
	}
	t->count = n;
}

bool taken_has(const struct taken *t, const char *name)
{
	return t->count > 0 && bsearch(&name, t->names, t->count, sizeof *t->names, compare_taken);
}

void taken_free(struct taken *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->names[i]);
	free(t->names);
	*t = TAKEN_NONE;
}
