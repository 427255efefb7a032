/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_FILES_FROM_H
#define COPY_RULES_FILES_FROM_H

/*
 * The names of --files-from, as a tree of components in which both ends look names up.  One thread
 * makes it; any thread may read it then.  A million names of 50 bytes must fit in 128 MiB.
 */

#include <stdbool.h>
#include <stddef.h>

struct files_from;
struct files_from_node; /* a directory or file that is listed, or leads to one that is */

int files_from_new(struct files_from **out);
void files_from_free(struct files_from *l); /* accepts NULL */
/* "a//b/./c/" means a/b/c (for rsync, /./ and the final slash mean more).  A leading / is dropped,
 * as rsync does.  ".." is refused, with a failure (OUT_USAGE).  A name may be added again.  "" and
 * "." list the top itself. */
int files_from_add(struct files_from *l, const char *name);

/* Never NULL. */
const struct files_from_node *files_from_top(const struct files_from *l);
/* The child of that name; NULL: none. */
const struct files_from_node *files_from_child(const struct files_from_node *dir, const char *name);
/* Is this node itself listed?  With -r everything in it is then, too. */
bool files_from_is_named(const struct files_from_node *n);
/* The next child, sorted by name.  *at starts as 0.  NULL: no more. */
const struct files_from_node *files_from_next(const struct files_from_node *dir, size_t *at,
					      const char **name);

#endif
