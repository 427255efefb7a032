/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_NAMES_OWN_FILES_H
#define COPY_NAMES_OWN_FILES_H

/*
 * The regular files that this command itself writes while it copies: the log, the list of failed
 * files, redirected output.  They may be in a source or in the target.  A source skips them, and a
 * sink neither deletes nor replaces them.  An end that was not forked by the command knows of none.
 *
 * own_files_add() is called before the ends are forked.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* What fd is, if it is a regular file.  There are at most as many as this command has outputs. */
void own_files_add(int fd);
bool own_files_has(const struct stat *st);
/* May an entry that a directory lists with this inode number be one?  False saves a stat. */
bool own_files_may_have(uint64_t ino);

#endif
