/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_TILDE_H
#define COPY_NAMES_TILDE_H

#include <stddef.h>

/* Expands ~ and ~user at the beginning of a path.  -1 with a failure: it does not fit, the user
 * is unknown (OUT_NO_SOURCE), or the user could not be looked up. */
int tilde_expand(const char *path, char *to, size_t size);

#endif
