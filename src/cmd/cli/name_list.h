/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_NAME_LIST_H
#define CMD_CLI_NAME_LIST_H

/*
 * Names or patterns in a file, one a line, or each with a NUL at its end: --files-from and the
 * like.  Read a piece at a time, so that it may be of any length and come out of a pipe.
 *
 * Of lines, empty ones and those that begin with # or ; are left out, as rsync has it.
 */

#include <stdbool.h>

struct name_list;

/* path "-": stdin.  -1 with OUT_USAGE. */
int name_list_open(const char *path, bool nul, struct name_list **out);
void name_list_close(struct name_list *l); /* NULL: nothing */
/* To be polled for reading. */
int name_list_fd(const struct name_list *l);
/* Read once, and hand over what is whole: 1, 0 at the end, -1 with a failure, take()'s too. */
int name_list_read(struct name_list *l, int (*take)(void *ctx, const char *name), void *ctx);

#endif
