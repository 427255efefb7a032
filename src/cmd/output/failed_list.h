/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_OUTPUT_FAILED_LIST_H
#define CMD_OUTPUT_FAILED_LIST_H

/*
 * --failed FILE: the names of files that failed, each with a NUL behind it, as --files-from
 * --from0 takes them.  Written under another name and renamed in the end, so that FILE may be the
 * list that is read meanwhile.
 */

#include <stdbool.h>
#include <stddef.h>

struct failed_list;

int failed_list_open(const char *path, struct failed_list **out);
void failed_list_add(struct failed_list *l, const char *name, size_t len);
bool failed_list_empty(const struct failed_list *l);
/* Put it in its place; 0, or -1 with a failure.  keep false: FILE stays what it was.  Frees l;
 * NULL: nothing. */
int failed_list_close(struct failed_list *l, bool keep);

#endif
