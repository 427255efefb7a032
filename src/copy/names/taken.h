/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_TAKEN_H
#define COPY_NAMES_TAKEN_H

/*
 * The names that sessions of one command have put into the target.  Sources on several hosts have
 * one session each, one after the other, and a later session must not overwrite what an earlier one
 * stored.  One thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>

struct taken {
	char **names;
	size_t count, room;
	size_t bytes;
};
#define TAKEN_NONE ((struct taken){.names = NULL})

/* -1 with a failure: OUT_MEMORY, or OUT_PROTOCOL for more than a peer may send. */
int taken_add(struct taken *t, const char *name);
/* Sorts, and removes duplicates.  Call before the first taken_has(), and before the names are
 * sent. */
void taken_sort(struct taken *t);
bool taken_has(const struct taken *t, const char *name);
void taken_free(struct taken *t);

#endif
