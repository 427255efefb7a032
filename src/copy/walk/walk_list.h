/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_WALK_WALK_LIST_H
#define COPY_WALK_WALK_LIST_H

/* Lists one directory, in the order in which the file system has it. Nothing is kept in memory. */

#include <sys/stat.h>

/* link: the target of a symlink, else "". A failure ends the listing. */
typedef int walk_list_each(void *ctx, const char *name, const struct stat *st, const char *link);
/*
 * What is in the directory path, if path ends with a slash or is "" (the working directory), which
 * may be a symlink to one; else what path names, a symlink itself. Sluice's own files are left out.
 * Returns 0; or -1 with a failure, OUT_NO_SOURCE if there is nothing of that name.
 */
int walk_list(const char *path, walk_list_each *each, void *ctx);

#endif
