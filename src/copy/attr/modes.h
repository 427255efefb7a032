/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_MODES_H
#define COPY_ATTR_MODES_H

/* --chmod with rsync's syntax: "u=rwX,go=rX", "D755,F644", several joined by commas.  D and F
 * restrict a part to directories and to files. */

#include <stdbool.h>
#include <stdint.h>

struct modes;
/* -1, OUT_USAGE, with what is wrong.  "": *out is NULL, which changes nothing. */
int modes_parse(const char *text, struct modes **out);
void modes_free(struct modes *m);
/* mode: permission bits, 07777. */
uint32_t modes_apply(const struct modes *m, uint32_t mode, bool dir);

#endif
