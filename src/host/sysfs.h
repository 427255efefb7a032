/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_SYSFS_H
#define HOST_SYSFS_H

/* Reads small files of sysfs, for adapter*.c only. A file that is missing or unreadable counts as
 * "". */

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

static inline const char *sysfs_root(const char *root)
{
	return root ? root : "/sys";
}

/* The text of the first line, without trailing spaces; false if there is none. */
bool sysfs_text(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
long sysfs_number(long otherwise, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last component of the path that a link finally resolves to. */
bool sysfs_link(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The names in a directory, sorted (numbers by value). Returns their number. */
int sysfs_names(struct dirent ***names, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sysfs_names_free(struct dirent **names, int count);

#endif
