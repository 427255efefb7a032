/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_LISTED_H
#define COPY_RULES_LISTED_H

/*
 * The names of --files-from: a tree of components, in which both ends look up what they meet.
 * Made by one thread, read by all.  A million names of 50 bytes must fit in 128 MiB.
 */

#include <stdbool.h>
#include <stddef.h>

struct listed;
struct listed_node; /* a directory or file that is listed, or leads to one that is */

int listed_new(struct listed **out);
void listed_free(struct listed *l); /* NULL: nothing */
/* "a//b/./c/" is a/b/c (to rsync /./ and the last slash mean more); a leading / is dropped, as
 * rsync does; ".." is refused, with a failure (OUT_USAGE). A name that is there already is no
 * mistake. "" and "." list the top itself. */
int listed_add(struct listed *l, const char *name);

/* The top: never NULL. */
const struct listed_node *listed_top(const struct listed *l);
/* What is called so in a node; NULL: nothing. */
const struct listed_node *listed_in(const struct listed_node *dir, const char *name);
/* Was this one itself asked for (with -r: and all that is in it)? */
bool listed_itself(const struct listed_node *n);
/* Children one after the other, sorted by name; *at starts as 0.  NULL: no more. */
const struct listed_node *listed_next(const struct listed_node *dir, size_t *at, const char **name);

#endif
