/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_CONFINE_H
#define CMD_SERVE_CONFINE_H

#include <stdbool.h>
#include "cmd/serve/account.h"

/*
 * Confines this process to a directory, for ever: the directory becomes its root (chroot(2)), so
 * that neither "..", nor an absolute path, nor a symlink leads out of it. A process without the
 * privilege for that makes a user namespace of its own, with its own uid and gid only. It keeps no
 * capability that could undo this, and gets no new ones.
 *
 * Where the kernel has Landlock, that is a second fence (sandbox.h). may_change: whether a client
 * may write or remove files in the module.
 *
 * Descriptors that are open stay usable. No thread may run yet.
 */

/* Becomes the account, too; NULL: stays who it is. Returns 0; or -1 with a failure, after which the
 * process must not serve anybody. */
int confine_enter(const char *dir, const struct run_as *as, bool may_change);
/*
 * The same, for a process that has to open devices as the user that it becomes: open_devices() is
 * called when its credentials are final, and before the directory becomes its root. Another
 * process, which shares the root directory (CLONE_FS), keeps the privilege for that until then.
 * With Landlock open_devices() can open what sandbox_enter_early() allows.
 */
int confine_enter_late(const char *dir, const struct run_as *as, bool may_change,
		       void (*open_devices)(void *ctx), void *ctx);
/* For a process that needs no file: it becomes the account, without capabilities. Returns the same.
 */
int confine_without_files(const struct run_as *as);
/* The same as nobody, if this process is root's. */
int confine_to_nothing(void);
/* Tries it in a process of its own. Returns 0, or -1 with a failure that says what is missing. */
int confine_check(const char *dir, const struct run_as *as);

#endif
