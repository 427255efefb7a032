/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOST_SYSFS_H
#define HOST_SYSFS_H

/* Reads small files of sysfs and configfs. A file that is missing or unreadable counts as "". The
 * path is composed as by printf(3). Any thread may call these. */

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

/* Tests put a tree of their own in place of /sys. */
static inline const char *sysfs_root(const char *root)
{
	return root ? root : "/sys";
}

/* The text of the first line, without trailing spaces; false if there is none. */
bool sysfs_text(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The decimal number that the first line begins with; otherwise, if there is none. */
long sysfs_number(long otherwise, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last component of the path that a link finally resolves to; false, and "", if there is none.
 */
bool sysfs_link(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The names in a directory that do not begin with a dot, sorted (numbers by value). Returns their
 * number, 0 if the directory cannot be read. sysfs_names_free() frees them. */
int sysfs_names(struct dirent ***names, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sysfs_names_free(struct dirent **names, int count);

/*
 * For a process that will not see /sys any longer (chroot(2)): from sysfs_keep() on it keeps what
 * it reads, and from sysfs_freeze() on these functions return that and nothing else. sysfs_forget()
 * ends that. Call them before other threads run.
 */
void sysfs_keep(void);
void sysfs_freeze(void);
void sysfs_forget(void);

#endif
