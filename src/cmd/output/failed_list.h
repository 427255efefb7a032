/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_FAILED_LIST_H
#define CMD_OUTPUT_FAILED_LIST_H

/*
 * --failed FILE: the names of files that failed, each followed by a NUL, in the format of
 * --files-from --from0. The list is written under another name and renamed at the end, so that FILE
 * may be the list that is being read.
 */

#include <stdbool.h>
#include <stddef.h>

struct failed_list;

int failed_list_open(const char *path, struct failed_list **out);
void failed_list_add(struct failed_list *l, const char *name, size_t len);
bool failed_list_empty(const struct failed_list *l);
/* Renames the list to FILE. Returns 0, or -1 with a failure. keep false: leaves FILE as it was.
 * Frees l, which may be NULL. */
int failed_list_close(struct failed_list *l, bool keep);

#endif
