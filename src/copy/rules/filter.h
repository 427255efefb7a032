/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_FILTER_H
#define COPY_RULES_FILTER_H

/*
 * --include and --exclude with rsync's rules (rsync(1), FILTER RULES in DEPTH): the first pattern
 * that matches decides, and what none matches is taken.  A pattern that begins with a slash is
 * matched from the top of the transfer (the tree as it is at DST: with `rdcp -r a DST' the top
 * holds "a"), one with another slash (but at its end) or two stars against the end of the path,
 * any other one against the last component.  A slash at its end: directories only.  One star and
 * a question mark match no slash, two stars do; [...] with classes; a backslash quotes.  A
 * directory followed by a slash and three stars is that directory and all in it.
 *
 * Made by one thread, read by all.
 */

#include <stdbool.h>

struct filter;
int filter_new(struct filter **out);
void filter_free(struct filter *f); /* NULL: nothing */
/* As the user wrote it: "+ " and "- " in front of it say what it is whatever the option was, and
 * "!" alone drops all rules so far. "" is none. */
int filter_add(struct filter *f, bool include, const char *pattern);
/* path: from the top, without leading or trailing slash, as long as it likes. NULL f: no. */
bool filter_excludes(const struct filter *f, const char *path, bool dir);

#endif
