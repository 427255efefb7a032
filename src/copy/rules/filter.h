/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_RULES_FILTER_H
#define COPY_RULES_FILTER_H

/*
 * --include and --exclude with rsync's rules (rsync(1), FILTER RULES in DEPTH).  The first pattern
 * that matches decides; what no pattern matches is included.
 *
 * - A pattern that begins with a slash is matched from the top of the transfer (the tree as it is
 *   at DST: with `rdcp -r a DST' the top holds "a").
 * - A pattern with another slash, except at its end, or with two stars is matched against the end
 *   of the path.
 * - Any other pattern is matched against the last component.
 * - A slash at the end of a pattern restricts it to directories.
 * - A star and a question mark match no slash; two stars do.  [...] supports classes.  A backslash
 *   quotes.
 * - A directory followed by a slash and three stars is that directory and everything in it.
 *
 * One thread makes it; any thread may read it then.
 */

#include <stdbool.h>
#include <stdint.h>

struct filter;
int filter_new(struct filter **out);
void filter_free(struct filter *f); /* accepts NULL */
/* pattern is as the user wrote it.  A leading "+ " or "- " overrides include.  "!" alone drops all
 * rules so far.  "" is ignored. */
int filter_add(struct filter *f, bool include, const char *pattern);
/* Equal patterns have equal hashes.  NULL f: 0. */
uint64_t filter_hash(const struct filter *f);
/* path: from the top, without leading or trailing slash, of any length.  NULL f: false. */
bool filter_excludes(const struct filter *f, const char *path, bool dir);

#endif
