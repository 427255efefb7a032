/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_NAME_H
#define COPY_NAMES_NAME_H

/* Names as users write them and as peers send them: text only, nothing is looked up on disk. */

#include <stdbool.h>
#include <stddef.h>

/* The last component of a path as the user wrote it ("a/b/" is "b", "/" and "." are ""). */
const char *name_last(const char *path, char *to, size_t size);
/* With --relative: where in a SRC begins what is made anew at the target: behind the first "/./",
 * if there is one. */
const char *name_relative(const char *path);
/* May a peer's file be called this? One component, not "", ".", "..", no '/', at most 255. */
bool name_is_plain(const char *name);
bool name_is_pattern(const char *name);
/* Is it what the user asked for: the last component of want, or a match of it? "-" wants "". */
bool name_answers(const char *name, const char *want);

#endif
