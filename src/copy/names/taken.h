/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_TAKEN_H
#define COPY_NAMES_TAKEN_H

/*
 * Names at the target that sessions of one command have brought: sources of several hosts come in a
 * session each, one after the other, and a later one must not overwrite what an earlier one
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

/* 0, or -1 with a failure: OUT_MEMORY, OUT_PROTOCOL for more than a peer may send. */
int taken_add(struct taken *t, const char *name);
/* Before the first taken_has(), and before they are sent: each name once, in order. */
void taken_sort(struct taken *t);
bool taken_has(const struct taken *t, const char *name);
void taken_free(struct taken *t);

#endif
