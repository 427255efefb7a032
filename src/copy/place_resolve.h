/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_RESOLVE_H
#define COPY_PLACE_RESOLVE_H

/*
 * From what the user wrote as DST to a held directory and a name in it.  Symbolic links that the
 * user named are followed here, once; after this nothing is looked up by a path again.
 */

#include <limits.h>
#include <stdbool.h>
#include "copy/place.h"

struct spot {
	int dirfd; /* O_PATH; -1 when direct */
	char name[NAME_MAX + 1]; /* in that directory; "": the directory is the target */
	bool direct; /* shown is no file to be replaced: open it as it stands */
	char shown[PATH_MAX]; /* the target as the user wrote it, ~ expanded */
};

int spot_resolve(const struct place_opts *o, struct spot *out);
void spot_close(struct spot *s);

#endif
