/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_CLI_NAME_LIST_H
#define CMD_CLI_NAME_LIST_H

/*
 * Names or patterns in a file, one per line or each terminated by NUL: --files-from and similar
 * options. Read in pieces, so that the file may have any length and may be a pipe.
 *
 * In line mode, empty lines and lines that begin with # or ; are skipped, as in rsync.
 */

#include <stdbool.h>

struct name_list;

/* path "-": stdin. Returns -1 with OUT_USAGE. */
int name_list_open(const char *path, bool nul, struct name_list **out);
void name_list_close(struct name_list *l); /* l may be NULL */
/* The descriptor to poll for reading. */
int name_list_fd(const struct name_list *l);
/* Reads once, and passes complete names to take(). Returns 1; 0 at the end; -1 with a failure, its
 * own or take()'s. */
int name_list_read(struct name_list *l, int (*take)(void *ctx, const char *name), void *ctx);

#endif
