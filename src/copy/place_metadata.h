/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_METADATA_H
#define COPY_PLACE_METADATA_H

/* Mode, owner, attributes and times of a finished file: through descriptors only. */

#include <stdbool.h>
#include <sys/stat.h>
#include "session/message.h"

/*
 * Give fd what the file old (a descriptor, O_PATH is enough) has: owner, and unless mode_too is
 * false also mode, ACLs and extended attributes.  Set-id bits only where the owner could be
 * kept.  *lost names what could not be, NULL: nothing.  -1 with errno set when the mode can't.
 */
int metadata_keep(int fd, int old, bool mode_too, const char **lost);
/* Permission bits and times of the source; never set-id bits. */
int metadata_preserve(int fd, const struct record_file *r);

#endif
