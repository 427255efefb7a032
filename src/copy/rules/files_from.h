/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_FILES_FROM_H
#define COPY_RULES_FILES_FROM_H

/*
 * The names of --files-from, as a tree of components in which both ends look names up.  One thread
 * makes it; any thread may read it then.  A million names of 50 bytes must fit in 128 MiB.
 */

#include <stdbool.h>
#include <stddef.h>

struct listed;
struct listed_node; /* a directory or file that is listed, or leads to one that is */

int listed_new(struct listed **out);
void listed_free(struct listed *l); /* accepts NULL */
/* "a//b/./c/" means a/b/c (for rsync, /./ and the final slash mean more).  A leading / is dropped,
 * as rsync does.  ".." is refused, with a failure (OUT_USAGE).  A name may be added again.  "" and
 * "." list the top itself. */
int listed_add(struct listed *l, const char *name);

/* Never NULL. */
const struct listed_node *listed_top(const struct listed *l);
/* The child of that name; NULL: none. */
const struct listed_node *listed_in(const struct listed_node *dir, const char *name);
/* Is this node itself listed?  With -r everything in it is then, too. */
bool listed_itself(const struct listed_node *n);
/* The next child, sorted by name.  *at starts as 0.  NULL: no more. */
const struct listed_node *listed_next(const struct listed_node *dir, size_t *at, const char **name);

#endif
