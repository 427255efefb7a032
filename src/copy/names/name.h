/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_NAME_H
#define COPY_NAMES_NAME_H

/* Names as users write them and as peers send them.  Only the text; nothing is looked up on
 * disk. */

#include <stdbool.h>
#include <stddef.h>

/* The last component of a path as the user wrote it ("a/b/" is "b", "/" and "." are ""). */
const char *name_last(const char *path, char *to, size_t size);
/* With --relative: the part of a SRC that is made again at the target, which is what follows the
 * first "/./", or all of it. */
const char *name_relative(const char *path);
/* May a peer give a file this name?  One component, not "", "." or "..", without '/', at most 255
 * bytes. */
bool name_is_plain(const char *name);
bool name_is_pattern(const char *name);
/* Is name what the user asked for: the last component of want, or a match for it?  "-" asks for
 * "". */
bool name_matches_want(const char *name, const char *want);
/* The same for any component of want. */
bool name_matches_component(const char *name, const char *component, const char *want);

#endif
